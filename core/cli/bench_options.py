"""The options of `devexplorer bench`: those of every kind together, the help of one, and what they ask for. No torch,
no Qt."""

from __future__ import annotations

import argparse

from devexplorer.core.base import Findings
from devexplorer.core.benchmark.kind import Option
from devexplorer.core.cli.arguments import PYTHON, TARGET, VIRTUAL, away_options, json_option, of_features
from devexplorer.core.feature import offered_kinds
from devexplorer.core.records import BenchSpec

SHARED_HELP = {
    "--device": "devices to measure (default cpu; of scaling, bandwidth and allreduce: all)",
    "--size": "shape of the product (default 1024; of scaling 1000); of allreduce: bytes, like 4K:64M",
    "--seconds": "how long to measure (default 5); of sweep: per shape, of bandwidth, allreduce: per size (0.2)",
    "--iterations": "of matmul and allreduce: stop after so many; of scaling: products per job (default 1000)",
}
"""Help of options that mean something else to each benchmark, where all are listed."""


def options() -> dict[str, tuple[Option, list[str]]]:
    """Flag -> the option and the benchmarks that take it."""
    result: dict[str, tuple[Option, list[str]]] = {}
    for kind in offered_kinds().values():
        for option in kind.options:
            result.setdefault(option.flag, (option, []))[1].append(kind.name)
    return result


class _Help(argparse.Action):
    """`-h`: after the name of a benchmark only what that one takes."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> None:
        kind = getattr(namespace, "benchmark", None)
        if kind in offered_kinds():
            _parser_of(kind, parser.prog).print_help()
        else:
            parser.print_help()
        parser.exit()


def bench_arguments(bench: argparse.ArgumentParser) -> None:
    """The arguments of all benchmarks, in groups."""
    bench.add_argument("-h", "--help", action=_Help, nargs=0, default=argparse.SUPPRESS, help="show this help and exit")
    names = f"{', '.join(offered_kinds())}; 'bench BENCHMARK --help' shows the options of one"
    bench.add_argument("benchmark", metavar="BENCHMARK", help=names)
    takers = ", ".join(kind.name for kind in offered_kinds().values() if kind.takes_target)
    bench.add_argument("target", metavar="TARGET", nargs="?", help=f"of {takers}: as TARGET of place (default mlp)")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option, kinds in options().values():
        if len(kinds) > 1:
            option.add(bench, SHARED_HELP.get(option.flag, ""))
            continue
        if kinds[0] not in groups:
            groups[kinds[0]] = bench.add_argument_group(kinds[0])
        option.add(groups[kinds[0]])
    _common(bench)


def _parser_of(name: str, program: str) -> argparse.ArgumentParser:
    """What one benchmark takes, for its help."""
    kind = offered_kinds()[name]
    parser = argparse.ArgumentParser(prog=f"{program} {name}", description=f"{kind.about.capitalize()}.")
    if kind.takes_target:
        parser.add_argument("target", metavar="TARGET", nargs="?", help=f"{TARGET} (default mlp)")
    parser.add_argument("--virtual", metavar="SPEC", help=VIRTUAL)
    parser.add_argument("--python", metavar="PATH", help=PYTHON)
    away_options(parser)
    for option in kind.options:
        option.add(parser)
    _common(parser)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    for keeper in of_features("BENCH_KEEPERS"):
        keeper.fill(parser)
    parser.add_argument("--no-store", action="store_true", help="keep the runs out of the history")
    json_option(parser)


def specs(arguments: argparse.Namespace, findings: Findings) -> list[BenchSpec]:
    """One specification per run; harmless values where something is wrong. Devices are named later where a kind needs
    several and the arguments name none."""
    name = arguments.benchmark
    if name not in offered_kinds():
        findings.add(f"there is no benchmark '{name}'; there are {', '.join(offered_kinds())}")
        return []
    if arguments.target is not None and not offered_kinds()[name].takes_target:
        takers = [kind.name for kind in offered_kinds().values() if kind.takes_target]
        findings.add(_refusal(f"the target '{arguments.target}'", name, takers))
    for option, kinds in options().values():
        if name not in kinds and getattr(arguments, option.name) is not None:
            findings.add(_refusal(option.flag, name, kinds))
    return offered_kinds()[name].specs(arguments, findings)


def _refusal(what: str, name: str, kinds: list[str]) -> str:
    return f"{what} means nothing to bench {name}; it is for bench {' and '.join(kinds)}"
