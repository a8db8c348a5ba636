"""The command line's grammar, and one clear line for what does not fit it. No torch, no Qt: the window's start-up reads it too."""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

from devexplorer.core.errors import BadInput

BENCHMARKS = ("matmul",)
"""Benchmarks of this version."""


class _Parser(argparse.ArgumentParser):
    """Raises `BadInput` where argparse would print usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message)


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: the window's start-up passes here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata

        print(f"devexplorer {importlib.metadata.version('devexplorer')}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    common = _Parser(add_help=False)
    common.add_argument(
        "--virtual",
        metavar="SPEC",
        default=argparse.SUPPRESS,
        help='add virtual GPUs, for example "2x Tesla T4" or "Tesla T4, NVIDIA A10"',
    )
    top = _Parser(
        prog="devexplorer",
        parents=[common],
        description="See every PyTorch device, move tensors and models between them, measure them. Without a command: the window.",
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    top.add_argument("--theme", choices=("dark", "light"), help="colours of the window")
    top.add_argument("--replay", metavar="FILE", help="open the window on a recording made with watch --record")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)

    tour = commands.add_parser("tour", parents=[common], help="do the main job, unattended, in the real window")
    tour.add_argument("--screenshots", metavar="DIR", help="save pictures of each step there")
    tour.add_argument("--theme", choices=("dark", "light"), default=argparse.SUPPRESS, help="colours of the window")

    devices = commands.add_parser("devices", parents=[common], help="list every device, and why one cannot be used")
    devices.add_argument("--details", action="store_true", help="with everything that is known of each, and how they are joined")
    _json(devices)

    watch = commands.add_parser("watch", parents=[common], help="show live readings of every device")
    watch.add_argument("--interval", metavar="S", default="1", help="seconds between readings (default 1)")
    watch.add_argument("--count", metavar="TICKS", help="stop after so many readings")
    watch.add_argument("--record", metavar="FILE", help="write every reading to a file that the window can replay")
    watch.add_argument("--prometheus", metavar="PORT", help="serve the readings for Prometheus at 127.0.0.1:PORT/metrics")
    watch.add_argument("--address", metavar="HOST", help="where --prometheus listens (default 127.0.0.1)")
    _json(watch, "print one JSON object for each device and reading, a line each")

    bench = commands.add_parser("bench", parents=[common], help="measure what a device does")
    bench.add_argument("benchmark", metavar="BENCHMARK", help=" or ".join(BENCHMARKS))
    bench.add_argument("--device", metavar="D", action="append", nargs="+", help="device to measure; may be given several times")
    bench.add_argument("--dtype", metavar="T", default="float32", help="as torch writes it, or fp16, bf16, tf32, … (default float32)")
    bench.add_argument("--size", metavar="N|MxNxK", default="1024", help="shape of the product (default 1024)")
    bench.add_argument("--mode", metavar="MODE", default="live", help="live")
    bench.add_argument("--seconds", metavar="S", help="how long to measure (default 5)")
    bench.add_argument("--iterations", metavar="N", help="stop after so many iterations")
    _json(bench)

    place = commands.add_parser("place", parents=[common], help="show which parameter and buffer of a model is where")
    place.add_argument("target", metavar="TARGET", help="a sample model (mlp, lenet, vgg16-bn, …) or package.module:factory")
    place.add_argument("--device", metavar="D", help="move there first")
    _json(place)

    env = commands.add_parser("env", parents=[common], help="versions and drivers, for bug reports")
    _json(env)
    return top


def _json(command: argparse.ArgumentParser, words: str = "print one JSON document") -> None:
    command.add_argument("--json", action="store_true", help=words)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments; raises `BadInput` with what is wrong and where to look."""
    try:
        arguments = parser().parse_args(argv)
    except BadInput as error:
        raise BadInput(f"{error}; see devexplorer --help") from None
    arguments.virtual = getattr(arguments, "virtual", None)
    screenshots = getattr(arguments, "screenshots", None)
    if screenshots and os.path.exists(screenshots) and not os.path.isdir(screenshots):
        raise BadInput(f"--screenshots {screenshots} is a file; name a folder, it is made when there is none")
    return arguments
