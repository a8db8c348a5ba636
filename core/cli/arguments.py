"""The command line's grammar: what several commands have in theirs, and one clear line for what does not fit it. No
torch, no Qt: the window's start-up reads it too."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Container
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any, NamedTuple, NoReturn

from devexplorer.core.base import BadInput
from devexplorer.core.features import FEATURES

TARGET = (
    "a sample model (mlp, lenet, vgg16-bn, …), package.module:factory, path/to/file.py:factory, torchvision:NAME,"
    " transformers:TYPE or transformers:path/to/config.json; options as in transformers:gpt2?n_layer=2"
    " or net.py:Net?cfg=@config.yaml"
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
    """Where it names what is shown in place of this machine, whose session starts when it is asked for: what that is. A
    file of this kind (`core.files.kinds`) opens also without the option. `run` gets the word, or the path."""
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


THEMES = ("dark", "light", "high-contrast")
WITH_VALUE = ("--virtual", "--python", "--theme")
"""Options of the window that are followed by a word, beside those of features."""


class _Parser(argparse.ArgumentParser):
    """Raises `BadInput` where argparse would print usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message)


def parser(words: Container[str] | None = None) -> argparse.ArgumentParser:
    """The grammar: all of it, or what is needed for these words of a command line. Commands that are not among them are
    listed, without their options: the window and `watch` would wait for those of `fleet`."""
    common = _Parser(add_help=False)
    common.add_argument("--virtual", metavar="SPEC", default=argparse.SUPPRESS, help=VIRTUAL)
    common.add_argument("--python", metavar="PATH", default=argparse.SUPPRESS, help=PYTHON)
    away_options(common, default=argparse.SUPPRESS)
    top = _Parser(
        prog="devexplorer",
        parents=[common],
        description=(
            "See every PyTorch device, move tensors and models between them, measure them. Without a command: the"
            " window."
        ),
    )
    top.add_argument("--version", action="store_true", help="show the version and exit")
    top.add_argument("--theme", choices=THEMES, help="colours of the window")
    for option in window_options():
        if not option.away:
            top.add_argument(f"--{option.name}", metavar=option.metavar, help=option.help)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for command in cli_commands().values():
        if words is not None and command.name not in words:
            commands.add_parser(command.name, add_help=False, help=command.help)
            continue
        parents = [common] if command.takes_common else []
        own_help = command.name != "bench"  # its kinds print theirs
        command.fill(commands.add_parser(command.name, parents=parents, add_help=own_help, help=command.help))
    return top


def _open(opens: argparse.ArgumentParser) -> None:
    opens.add_argument("files", metavar="FILE", nargs="+", help="a recording, tensors, a model's Python, …")
    opens.add_argument("--theme", choices=THEMES, default=argparse.SUPPRESS, help="colours of the window")


def _tour(tour: argparse.ArgumentParser) -> None:
    tour.add_argument("--screenshots", metavar="DIR", help="save pictures of each step there")
    tour.add_argument("--theme", choices=THEMES, default=argparse.SUPPRESS, help="colours of the window")


def _devices(devices: argparse.ArgumentParser) -> None:
    add_options(devices, ("--details", None, "with everything that is known of each, and how they are joined"))
    json_option(devices)


def _bench(bench: argparse.ArgumentParser) -> None:
    from devexplorer.core.cli.bench_options import bench_arguments  # numpy: only who measures waits for it

    bench_arguments(bench)


def _place(place: argparse.ArgumentParser) -> None:
    place.add_argument("target", metavar="TARGET", help=TARGET)
    place.add_argument("--device", metavar="D", help="move there first")
    json_option(place)


def _install_desktop(desktop: argparse.ArgumentParser) -> None:
    add_options(desktop, ("--remove", None, "take away what it wrote"))
    json_option(desktop)


KERNEL_WORDS = (
    CliCommand("open", "open the window on files; `devexplorer FILE` does, too", _open),
    CliCommand("tour", "do the main job, unattended, in the real window", _tour),
    CliCommand(
        "devices", "list every device, and why one cannot be used", _devices, "cli.devices:devices", elsewhere=True
    ),
    CliCommand("bench", "measure what a device does", _bench, "cli.bench:bench", elsewhere=True, one_kind=True),
    CliCommand(
        "place",
        "show which parameter and buffer of a model is where",
        _place,
        "cli.place:place",
        elsewhere=True,
        one_kind=True,
    ),
    CliCommand("env", "versions and drivers, for bug reports", json_option, "cli.env:env", elsewhere=True),
    CliCommand(
        "install-desktop",
        "add DevExplorer to the menu and to the file types of a desktop",
        _install_desktop,
        "cli.install_desktop:install_desktop",
        takes_common=False,
    ),
)


@cache
def cli_commands() -> dict[str, CliCommand]:
    """Every command by its word: the kernel's, then those of features."""
    return {command.name: command for command in (*KERNEL_WORDS, *of_features("COMMANDS"))}


def elsewhere() -> list[str]:
    """Commands that another Python or machine can carry out."""
    return [name for name, command in cli_commands().items() if command.elsewhere]


def _with_open(argv: list[str]) -> list[str]:
    """The word `open` where a file is named in place of a command; no command has a dot or a slash in it."""
    with_value = {*WITH_VALUE, *(f"--{option.name}" for option in window_options())}
    first = 0
    while first < len(argv) and argv[first].startswith("-"):
        first += 2 if argv[first] in with_value else 1
    is_file = first < len(argv) and ("." in argv[first] or os.sep in argv[first])
    return [*argv[:first], "open", *argv[first:]] if is_file else argv


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments; raises `BadInput` with what is wrong and where to look."""
    argv = _with_open(argv)
    try:
        arguments = parser(argv).parse_args(argv)
    except BadInput as error:
        raise BadInput(f"{error}; see devexplorer --help") from None
    arguments.virtual = getattr(arguments, "virtual", None)
    arguments.python = getattr(arguments, "python", None)
    arguments.argv = argv
    return arguments
