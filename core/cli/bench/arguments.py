"""The options of `devexplorer bench`: which of them each benchmark takes, and its own help. No torch, no Qt."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from devexplorer.core.cli.terminal.common_arguments import SHAPES, TARGET, VIRTUAL, json_option

BENCHMARKS = ("matmul", "bandwidth", "scaling", "model", "sweep")
"""What `bench` measures."""
MODES = ("live", "burst", "sustained")
"""How `bench matmul` measures."""
ABOUT = {
    "matmul": "measure matrix products",
    "bandwidth": "measure copies between devices",
    "scaling": "measure the same job on several devices, at once and one after the other",
    "model": "measure the steps of a model",
    "sweep": "measure matrix products of many shapes, or look for the fastest",
}


class Option(NamedTuple):
    """One option of `bench`. There are no defaults: one that is given where it means nothing is refused, not
    ignored."""

    flag: str
    help: str
    kinds: tuple[str, ...] = BENCHMARKS
    """Benchmarks that it means something to."""
    metavar: str | None = None
    """None: it takes no value."""
    dest: str = ""
    several: bool = False
    """Whether it takes several values, and may be given again."""
    own: dict[str, str] = {}  # noqa: RUF012  # never changed
    """What the help of one benchmark says instead."""

    @property
    def name(self) -> str:
        """Of the argument in the namespace."""
        return self.dest or self.flag.removeprefix("--").replace("-", "_")

    def add(self, parser: Any, kind: str | None) -> None:
        """To the parser of a benchmark, or of all."""
        words = self.own.get(kind or "", self.help)
        if self.metavar is None:
            parser.add_argument(self.flag, dest=self.name, action="store_true", default=None, help=words)
        elif self.several:
            parser.add_argument(self.flag, dest=self.name, metavar=self.metavar, action="append", nargs="+", help=words)
        else:
            parser.add_argument(self.flag, dest=self.name, metavar=self.metavar, help=words)


def _options() -> tuple[Option, ...]:
    sizes = 'shapes: "256:4096:256", "512,1024", "1024x256:1024:256x4096" (default 256:2048:256)'
    devices = {"scaling": "devices to measure (default all)", "bandwidth": "devices to measure (default all)"}
    return (
        Option(
            "--device",
            "devices to measure (default cpu; of scaling and bandwidth: all)",
            metavar="D",
            several=True,
            own={**devices, **dict.fromkeys(("matmul", "sweep", "model"), "devices to measure (default cpu)")},
        ),
        Option(
            "--dtype",
            "as torch writes it, or fp16, bf16, tf32, … (default float32)",
            ("matmul", "sweep", "scaling"),
            "T",
        ),
        Option(
            "--size",
            "shape of the product (default 1024; of scaling 1000)",
            ("matmul", "sweep", "scaling"),
            "N|MxNxK",
            own={
                "matmul": "shape of the product (default 1024)",
                "sweep": "one shape, as --sizes",
                "scaling": "rows and columns of the matrices, one number (default 1000)",
            },
        ),
        Option(
            "--seconds",
            "how long to measure (default 5); of sweep: per shape, of bandwidth: per copy (0.2)",
            ("matmul", "sweep", "bandwidth", "model"),
            "S",
            own={
                "matmul": "how long to measure (default 5, in burst mode 2, in sustained mode 10)",
                "model": "how long to measure (default 5)",
                "sweep": "how long to measure each shape (default 0.2)",
                "bandwidth": "how long to measure each copy (default 0.2)",
            },
        ),
        Option(
            "--iterations",
            "of matmul: stop after so many; of scaling: products per job (default 1000)",
            ("matmul", "scaling"),
            "N",
            own={"matmul": "stop after so many", "scaling": "products per job (default 1000)"},
        ),
        Option("--mode", f"{', '.join(MODES)} (default live)", ("matmul",), "MODE"),
        Option("--batch", "so many products at once (default 1)", ("matmul",), "N"),
        Option("--transpose", "operands that are stored transposed", ("matmul",), "a|b|ab"),
        Option("--flush-cache", "overwrite the L2 cache between iterations", ("matmul",)),
        Option("--sizes", sizes, ("sweep",), "RANGES"),
        Option("--search", "look for the fastest shape for so long, beginning with --sizes", ("sweep",), "SECONDS"),
        Option("--from", "copy from there (default: the devices)", ("bandwidth",), "D", "sources", several=True),
        Option("--to", "copy to there (default: the devices)", ("bandwidth",), "D", "destinations", several=True),
        Option("--bytes", 'bytes per copy: "4K,1M" or "4K:1G" (default 4K,64K,1M,16M,256M)', ("bandwidth",), "SIZES"),
        Option("--pinned", "pinned host memory only (default: both)", ("bandwidth",)),
        Option("--pageable", "pageable host memory only (default: both)", ("bandwidth",)),
        Option("--both-ways", "there and back at once, too", ("bandwidth",)),
        Option("--batch-size", "samples per step (default 8)", ("model",), "N"),
        Option("--input", SHAPES, ("model",), "SHAPES"),
        Option("--train", "forward, backward and optimizer step; otherwise forward", ("model",)),
        Option("--optimizer", "with --train: sgd, adam or adamw (default sgd)", ("model",), "NAME"),
        Option("--autocast", "float16 or bfloat16", ("model",), "T"),
        Option("--compile", "through torch.compile", ("model",)),
    )


OPTIONS = _options()
TAKEN_BY = {"target": ("model",), **{option.name: option.kinds for option in OPTIONS if option.kinds != BENCHMARKS}}
"""Argument -> benchmarks that it means something to."""


class _Help(argparse.Action):
    """`-h`: after the name of a benchmark only what that one takes."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> None:
        kind = getattr(namespace, "benchmark", None)
        if kind in BENCHMARKS:
            _of(kind, parser.prog).print_help()
        else:
            parser.print_help()
        parser.exit()


def bench_arguments(bench: argparse.ArgumentParser) -> None:
    """The arguments of all benchmarks, in groups."""
    bench.add_argument("-h", "--help", action=_Help, nargs=0, default=argparse.SUPPRESS, help="show this help and exit")
    names = f"{', '.join(BENCHMARKS)}; 'bench BENCHMARK --help' shows the options of one"
    bench.add_argument("benchmark", metavar="BENCHMARK", help=names)
    bench.add_argument("target", metavar="TARGET", nargs="?", help="of model: as TARGET of place (default mlp)")
    groups = {kind: bench.add_argument_group(kind) for kind in ("matmul", "sweep", "bandwidth", "model")}
    for option in OPTIONS:
        option.add(groups[option.kinds[0]] if len(option.kinds) == 1 else bench, None)
    _common(bench)


def _of(kind: str, program: str) -> argparse.ArgumentParser:
    """What one benchmark takes, for its help."""
    parser = argparse.ArgumentParser(prog=f"{program} {kind}", description=f"{ABOUT[kind].capitalize()}.")
    if kind == "model":
        parser.add_argument("target", metavar="TARGET", nargs="?", help=f"{TARGET} (default mlp)")
    parser.add_argument("--virtual", metavar="SPEC", help=VIRTUAL)
    for option in OPTIONS:
        if kind in option.kinds:
            option.add(parser, kind)
    _common(parser)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tag", metavar="TEXT", action="append", help="find the runs under this word in the history")
    parser.add_argument("--no-store", action="store_true", help="keep the runs out of the history")
    json_option(parser)
