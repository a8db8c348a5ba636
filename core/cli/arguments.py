"""The command line's grammar, and one clear line for what does not fit it. No torch, no Qt: the window's start-up reads it too."""

from __future__ import annotations

import argparse
import os
from typing import Any, NoReturn

from devexplorer.core.errors import BadInput

BENCHMARKS = ("matmul", "bandwidth", "scaling", "model", "sweep")
"""What `bench` measures."""
TARGET = (
    "a sample model (mlp, lenet, vgg16-bn, …), package.module:factory, path/to/file.py:factory, torchvision:NAME, transformers:TYPE or "
    "transformers:path/to/config.json; options as in transformers:gpt2?n_layer=2"
)
"""What models `place`, `doctor`, `fit` and `bench model` take."""
SHAPES = "what forward gets: 4x12, 8x16:int64, several with commas (default: a guess)"
TIMEOUT = "seconds after which its process is ended (default 120)"
MODES = ("live", "burst", "sustained")
"""How `bench matmul` measures."""


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

    _bench(commands.add_parser("bench", parents=[common], help="measure what a device does"))

    place = commands.add_parser("place", parents=[common], help="show which parameter and buffer of a model is where")
    place.add_argument("target", metavar="TARGET", help=TARGET)
    place.add_argument("--device", metavar="D", help="move there first")
    _json(place)

    _doctor(commands.add_parser("doctor", parents=[common], help="find the line that puts a tensor on the wrong device"))
    _fit(commands.add_parser("fit", parents=[common], help="say whether a model fits a card, and how fast it would be"))

    env = commands.add_parser("env", parents=[common], help="versions and drivers, for bug reports")
    _json(env)
    return top


def _bench(bench: argparse.ArgumentParser) -> None:
    """Options have no defaults here: one that was given where it means nothing is refused, not ignored."""
    bench.add_argument("benchmark", metavar="BENCHMARK", help=", ".join(BENCHMARKS))
    bench.add_argument("target", metavar="TARGET", nargs="?", help="of model: as TARGET of place (default mlp)")
    several: dict[str, Any] = {"metavar": "D", "action": "append", "nargs": "+"}
    bench.add_argument("--device", **several, help="devices to measure (default cpu; of scaling and bandwidth: all)")
    bench.add_argument("--dtype", metavar="T", help="as torch writes it, or fp16, bf16, tf32, … (default float32)")
    bench.add_argument("--size", metavar="N|MxNxK", help="shape of the product (default 1024; of scaling 1000)")
    bench.add_argument("--seconds", metavar="S", help="how long to measure (default 5); of sweep: per shape, of bandwidth: per copy (0.2)")
    bench.add_argument("--iterations", metavar="N", help="of matmul: stop after so many; of scaling: products per job (default 1000)")
    bench.add_argument("--tag", metavar="TEXT", action="append", help="find the runs under this word in the history")
    bench.add_argument("--no-store", action="store_true", help="keep the runs out of the history")
    _json(bench)
    matmul = bench.add_argument_group("matmul")
    matmul.add_argument("--mode", metavar="MODE", help=f"{', '.join(MODES)} (default live)")
    matmul.add_argument("--batch", metavar="N", help="so many products at once (default 1)")
    matmul.add_argument("--transpose", metavar="a|b|ab", help="operands that are stored transposed")
    matmul.add_argument("--flush-cache", action="store_true", default=None, help="overwrite the L2 cache between iterations")
    sweep = bench.add_argument_group("sweep")
    sizes = 'shapes: "256:4096:256", "512,1024", "1024x256:1024:256x4096" (default 256:2048:256)'
    sweep.add_argument("--sizes", metavar="RANGES", help=sizes)
    sweep.add_argument("--search", metavar="SECONDS", help="look for the fastest shape for so long, beginning with --sizes")
    bandwidth = bench.add_argument_group("bandwidth")
    bandwidth.add_argument("--from", dest="sources", **several, help="copy from there (default: the devices)")
    bandwidth.add_argument("--to", dest="destinations", **several, help="copy to there (default: the devices)")
    bandwidth.add_argument("--bytes", metavar="SIZES", help='bytes per copy: "4K,1M" or "4K:1G" (default 4K,64K,1M,16M,256M)')
    bandwidth.add_argument("--pinned", action="store_true", default=None, help="pinned host memory only")
    bandwidth.add_argument("--pageable", action="store_true", default=None, help="pageable host memory only")
    bandwidth.add_argument("--both-ways", action="store_true", default=None, help="there and back at once, too")
    model = bench.add_argument_group("model")
    model.add_argument("--batch-size", metavar="N", help="samples per step (default 8)")
    model.add_argument("--input", metavar="SHAPES", help=SHAPES)
    model.add_argument("--train", action="store_true", default=None, help="forward, backward and optimizer step; otherwise forward")
    model.add_argument("--optimizer", metavar="NAME", help="with --train: sgd, adam or adamw (default sgd)")
    model.add_argument("--autocast", metavar="T", help="float16 or bfloat16")
    model.add_argument("--compile", action="store_true", default=None, help="through torch.compile")


def _doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("target", metavar="TARGET", help=TARGET)
    doctor.add_argument("--device", metavar="D", help="where the model is moved and runs (default: the first GPU, or else vgpu:0)")
    doctor.add_argument("--input", metavar="SHAPES", help=SHAPES)
    doctor.add_argument("--train", action="store_true", help="backward and a step of an optimizer, too")
    doctor.add_argument("--dtype", metavar="T", help="move the model to this dtype, too")
    doctor.add_argument("--timeout", metavar="S", help=TIMEOUT)
    doctor.add_argument("--allow-unchecked", action="store_true", help="exit code 0 also when something could not be checked")
    _json(doctor)
    doctor.add_argument("--github", action="store_true", help="print annotations for GitHub Actions")


def _fit(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("target", metavar="TARGET", help=TARGET)
    cards = 'a card, or several with the model split over them: "2x Tesla T4"; may be given again (default: --virtual, else every profile)'
    fit.add_argument("--gpu", metavar="GPU", action="append", help=cards)
    fit.add_argument("--batch", metavar="N", help="samples per step (default 1, or the first size of --input)")
    fit.add_argument("--dtype", metavar="T", help="of parameters and inputs (default: the model's own)")
    fit.add_argument("--autocast", metavar="T", help="float16 or bfloat16")
    fit.add_argument("--train", action="store_true", help="forward, backward and optimizer step; otherwise forward")
    fit.add_argument("--optimizer", metavar="NAME", help="with --train: sgd, momentum, adam or adamw (default adamw)")
    fit.add_argument("--checkpointing", action="store_true", help="with --train: compute activations of blocks again in backward")
    fit.add_argument("--input", metavar="SHAPES", help=SHAPES)
    fit.add_argument("--timeout", metavar="S", help=TIMEOUT)
    _json(fit)


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
