"""The window on a recording, and `devexplorer watch` that makes one. Data; main thread, no torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from devexplorer.core.cli.arguments import WindowOption
from devexplorer.core.watch.command_line import WatchOption


def _check(word: str, _arguments: argparse.Namespace) -> None:
    """Said here in one line, and not later in the window."""
    from devexplorer.core.recording.format import peek

    peek(Path(word))


WINDOW_OPTIONS = (
    WindowOption(
        "replay",
        "FILE",
        "open the window on a recording made with watch --record",
        _check,
        "recording.actions:open_recording",
        kind="recording",
    ),
)
WATCH_OPTIONS = (
    WatchOption(
        "record", "FILE", "write every reading to a file that the window can replay", "recording.watching:Watched"
    ),
)
