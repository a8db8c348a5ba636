"""What several commands have in their grammar. No torch, no Qt: the window's start-up reads it too."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any, NamedTuple

from devexplorer.core.features import FEATURES

TARGET = (
    "a sample model (mlp, lenet, vgg16-bn, …), package.module:factory, path/to/file.py:factory, torchvision:NAME,"
    " transformers:TYPE or transformers:path/to/config.json; options as in transformers:gpt2?n_layer=2"
)
"""What models `place`, `doctor`, `fit` and `bench model` take."""
SHAPES = "what forward gets: 4x12, 8x16:int64, several with commas (default: inferred)"
TIMEOUT = "seconds after which its process is ended (default 120)"
VIRTUAL = 'add virtual GPUs, for example "2x Tesla T4" or "Tesla T4, NVIDIA A10"'
PYTHON = "run in this Python, an interpreter or the folder of its environment; 'devexplorer env' lists them"


def json_option(command: argparse.ArgumentParser, text: str = "print one JSON document") -> None:
    """The option `--json`."""
    command.add_argument("--json", action="store_true", help=text)


def add_options(command: argparse.ArgumentParser, *options: tuple[str, str | None, str]) -> None:
    """Options as flag, what its value is called (None: it takes none), and help."""
    for flag, metavar, text in options:
        if metavar is None:
            command.add_argument(flag, action="store_true", help=text)
        else:
            command.add_argument(flag, metavar=metavar, help=text)


class CliCommand(NamedTuple):
    """A word behind `devexplorer`, with what follows it. A feature has its own in the `COMMANDS` of its
    `command_line.py`."""

    name: str
    help: str
    fill: Callable[[argparse.ArgumentParser], None]
    """Adds its options."""
    run: str = ""
    """What carries it out, `package.module:function` below core, imported for it; it gets the parsed arguments and
    returns the exit code. Empty: the window does."""
    takes_common: bool = True
    """Whether --virtual, --python and options that lead `away` mean something to it, where all commands have them."""
    elsewhere: bool = False
    """It asks devices, which another Python may know better, or which can be those of another machine."""
    one_kind: bool = False
    """With --virtual it works on virtual GPUs, which torch cannot have in one process with CUDA cards."""


class WindowOption(NamedTuple):
    """An option of the window, followed by a word: what it opens on. A feature has its own in the `WINDOW_OPTIONS` of
    its `command_line.py`."""

    name: str
    metavar: str
    help: str
    check: Callable[[str, argparse.Namespace], None]
    """Raises `BadInput` where the word, or what else was given, does not go with it."""
    run: str
    """What does it, `package.module:function` below gui: it gets the context of the window and the parsed arguments."""
    kind: str = ""
    """Where it names a file that is shown in place of this machine, whose session starts when it is asked for: the kind
    of that (`core.files.kinds`). So a file of that kind opens also without the option; it gets the path then."""
    away: str = ""
    """With it nothing is started on this machine: what carries out a command elsewhere, `package.module:function` below
    core, for it gets the parsed arguments. Empty: it means nothing to commands."""


class BenchKeeper(NamedTuple):
    """What keeps the runs of `devexplorer bench`. A feature has its own in the `BENCH_KEEPERS` of its
    `command_line.py`."""

    fill: Callable[[argparse.ArgumentParser], None]
    """Adds its options."""
    run: str
    """What does it, `package.module:class` below core, made of the arguments and of `Findings`: `keep` gets a result
    and its conditions, `close` ends it."""


@cache
def window_options() -> tuple[WindowOption, ...]:
    """Options of features for the window."""
    return tuple(of_features("WINDOW_OPTIONS"))


def away_options(command: argparse.ArgumentParser, **more: Any) -> None:
    """Those that lead to another machine."""
    for option in window_options():
        if option.away:
            command.add_argument(f"--{option.name}", metavar=option.metavar, help=option.help, **more)


def away(arguments: argparse.Namespace) -> WindowOption | None:
    """The option that was given and leads to another machine."""
    return next((one for one in window_options() if one.away and getattr(arguments, one.name, None) is not None), None)


def of_features(name: str) -> list[Any]:
    """What they have under this name in their `command_line.py`."""
    found: list[Any] = []
    for feature in FEATURES:
        module = f"devexplorer.core.{feature}.command_line"
        if find_spec(module) is not None:
            found += getattr(resolve_name(module), name, ())
    return found
