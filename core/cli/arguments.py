"""The command line's grammar, and one clear line for what does not fit it. No torch, no Qt: the window's start-up reads
it too."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Container
from typing import NamedTuple, NoReturn

from devexplorer.core.base import BadInput
from devexplorer.core.cli.fleet.arguments import CLUSTER, fleet_arguments
from devexplorer.core.cli.terminal.common_arguments import (
    PYTHON,
    SHAPES,
    SSH,
    TARGET,
    VIRTUAL,
    add_options,
    json_option,
)

THEMES = ("dark", "light", "high-contrast")
WITH_VALUE = ("--virtual", "--python", "--ssh", "--theme", "--replay", "--cluster")
"""Options of the window that are followed by a word."""
WEIGHTS = (
    "with --generate: int4, int8, fp8, gptq, awq, bnb-int8 or bnb-nf4, or a checkpoint (a .safetensors file or a folder"
    " of them; headers only)"
)
TIMEOUT = "seconds after which its process is ended (default 120)"


class _Parser(argparse.ArgumentParser):
    """Raises `BadInput` where argparse would print usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message)


class _Command(NamedTuple):
    """A word behind `devexplorer`, with what follows it."""

    name: str
    help: str
    fill: Callable[[argparse.ArgumentParser], None]
    takes_common: bool = True
    """Whether --virtual, --python and --ssh mean something to it, where they are for all commands."""


def parser(words: Container[str] | None = None) -> argparse.ArgumentParser:
    """The grammar: all of it, or what is needed for these words of a command line. Commands that are not among them are
    listed, without their options: the window and `watch` would wait for those of `fleet`."""
    common = _Parser(add_help=False)
    common.add_argument("--virtual", metavar="SPEC", default=argparse.SUPPRESS, help=VIRTUAL)
    common.add_argument("--python", metavar="PATH", default=argparse.SUPPRESS, help=PYTHON)
    common.add_argument("--ssh", metavar="HOST", default=argparse.SUPPRESS, help=SSH)
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
    top.add_argument("--replay", metavar="FILE", help="open the window on a recording made with watch --record")
    top.add_argument("--cluster", metavar="ADDRESS", help=f"open the window on the page Fleet with {CLUSTER}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for command in COMMANDS:
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


def _watch(watch: argparse.ArgumentParser) -> None:
    watch.add_argument("--interval", metavar="S", default="1", help="seconds between readings (default 1)")
    add_options(
        watch,
        ("--count", "TICKS", "stop after so many readings"),
        ("--record", "FILE", "write every reading to a file that the window can replay"),
        ("--prometheus", "PORT", "serve the readings for Prometheus at 127.0.0.1:PORT/metrics"),
        ("--address", "HOST", "where --prometheus listens (default 127.0.0.1)"),
    )
    json_option(watch, "print one JSON object for each device and reading, a line each")


def _bench(bench: argparse.ArgumentParser) -> None:
    from devexplorer.core.cli.bench.arguments import bench_arguments  # numpy: only who measures waits for it

    bench_arguments(bench)


def _place(place: argparse.ArgumentParser) -> None:
    place.add_argument("target", metavar="TARGET", help=TARGET)
    place.add_argument("--device", metavar="D", help="move there first")
    json_option(place)


def _show(show: argparse.ArgumentParser) -> None:
    show.add_argument("path", metavar="FILE", help="a file of tensors, the index of a checkpoint, or a folder with one")
    json_option(show)


def _cluster(cluster: argparse.ArgumentParser) -> None:
    words = cluster.add_subparsers(dest="word", metavar="WORD", required=True, parser_class=_Parser)
    up = words.add_parser("up", help="start it, print its address, end it on Ctrl-C")
    up.add_argument("--nodes", metavar="N", default="3", help="how many nodes (default 3)")


def _install_desktop(desktop: argparse.ArgumentParser) -> None:
    add_options(desktop, ("--remove", None, "take away what it wrote"))
    json_option(desktop)


def _host(host: argparse.ArgumentParser) -> None:
    words = host.add_subparsers(dest="word", metavar="WORD", required=True, parser_class=_Parser)
    serve = words.add_parser("serve", help="start the host of this Python environment, if none runs")
    add_options(serve, ("--foreground", None, "in this process, for service managers"))
    proxy = words.add_parser("proxy", help="connect standard input and output to it (what ssh runs)")
    proxy.add_argument("--marker", metavar="HEX", required=True, help="what is printed before everything else")
    for command in (serve, proxy):
        command.add_argument("--virtual", metavar="SPEC", default=argparse.SUPPRESS, help=VIRTUAL)
    stop = words.add_parser("stop", help="end the hosts of this user on this machine")
    stop.add_argument("pid", metavar="PID", nargs="?", help="only the one with this process id")
    json_option(stop)
    json_option(words.add_parser("list", help="list the hosts of this user on this machine"))


def _doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("target", metavar="TARGET", help=TARGET)
    add_options(
        doctor,
        ("--device", "D", "where the model is moved and runs (default: the first GPU, or else vgpu:0)"),
        ("--input", "SHAPES", SHAPES),
        ("--train", None, "backward and a step of an optimizer, too"),
        ("--dtype", "T", "move the model to this dtype, too"),
        ("--timeout", "S", TIMEOUT),
        ("--allow-unchecked", None, "exit code 0 also when something could not be checked"),
    )
    json_option(doctor)
    add_options(doctor, ("--github", None, "print annotations for GitHub Actions"))


def _calibrations(calibrations: argparse.ArgumentParser) -> None:
    add_options(calibrations, ("--remove", "NAME", "remove the one of this name"))
    json_option(calibrations)


def _fit(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("target", metavar="TARGET", help=TARGET)
    cards = (
        'a card, or several with the model split over them: "2x Tesla T4"; may be given again (default: --virtual, else'
        " every profile)"
    )
    fit.add_argument("--gpu", metavar="GPU", action="append", help=cards)
    add_options(
        fit,
        ("--batch", "N", "samples per step (default 1, or the first size of --input)"),
        ("--dtype", "T", "of parameters and inputs (default: the model's own)"),
        ("--autocast", "T", "float16 or bfloat16"),
        ("--train", None, "forward, backward and optimizer step; otherwise forward"),
        ("--optimizer", "NAME", "with --train: sgd, momentum, adam or adamw (default adamw)"),
        ("--checkpointing", None, "with --train: compute activations of blocks again in backward"),
        ("--tf32", None, "float32 matrix products in TF32; by default only convolutions"),
        ("--channels-last", None, "weights of convolutions and images in channels_last"),
        ("--curve", None, "time and memory of the first card over the batch"),
        ("--input", "SHAPES", SHAPES),
        ("--generate", "N", "generate so many tokens with a language model of transformers"),
        ("--prompt", "N", "with --generate: tokens of each prompt (default 512)"),
        ("--kv-dtype", "T", "with --generate: of keys and values (default: as activations), fp8 for example"),
        ("--kv-block", "N", "with --generate: page the cache in blocks of so many tokens (vLLM: 16)"),
        ("--prefill-chunk", "N", "with --generate: at most so many tokens of a prompt at a time (default: all)"),
        ("--tensor-parallel", "N", "with --generate: split every layer over so many cards"),
        ("--weights", "W", WEIGHTS),
        ("--timeout", "S", TIMEOUT),
    )
    json_option(fit)


COMMANDS = (
    _Command("open", "open the window on files; `devexplorer FILE` does, too", _open),
    _Command("tour", "do the main job, unattended, in the real window", _tour),
    _Command("devices", "list every device, and why one cannot be used", _devices),
    _Command("watch", "show live readings of every device", _watch),
    _Command("bench", "measure what a device does", _bench),
    _Command("place", "show which parameter and buffer of a model is where", _place),
    _Command("show", "list the tensors of a checkpoint, with nothing of it run", _show),
    _Command("doctor", "find the line that puts a tensor on the wrong device", _doctor),
    _Command("fit", "say whether a model fits a card, and how fast it would be", _fit),
    _Command("calibrations", "list the cards that were calibrated for fit", _calibrations, takes_common=False),
    _Command("env", "versions and drivers, for bug reports", json_option),
    _Command("fleet", "show every card of many machines", fleet_arguments, takes_common=False),
    _Command("cluster", "a Ray cluster on this machine, for trying", _cluster, takes_common=False),
    _Command("host", "what windows on other machines connect to: start it, list it, end it", _host, takes_common=False),
    _Command(
        "install-desktop",
        "add DevExplorer to the menu and to the file types of a desktop",
        _install_desktop,
        takes_common=False,
    ),
)


def _with_open(argv: list[str]) -> list[str]:
    """The word `open` where a file is named in place of a command; no command has a dot or a slash in it."""
    first = 0
    while first < len(argv) and argv[first].startswith("-"):
        first += 2 if argv[first] in WITH_VALUE else 1
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
    arguments.ssh = getattr(arguments, "ssh", None)
    arguments.argv = argv
    return arguments
