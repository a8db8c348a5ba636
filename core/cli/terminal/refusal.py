"""One line on standard error. Any thread; imports nothing, because every start of a command imports it."""

from __future__ import annotations

import sys


def say(message: str) -> None:
    """A line beside what the command prints, without codes for the terminal: a message can be that of any code."""
    if sys.stderr is not None:  # None: the shell closed it
        line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(message.split()))
        print(f"devexplorer: {line}", file=sys.stderr, flush=True)


def refuse(message: str) -> int:
    """Say in one line what is wrong; returns the exit code of what could not be run."""
    say(message)
    return 2
