"""What the arguments of `devexplorer bench` ask for, as specifications. No torch, main thread."""

from __future__ import annotations

import argparse

from devexplorer.core.base.findings import Findings
from devexplorer.core.benchmark.kinds import KINDS
from devexplorer.core.cli.bench.arguments import options
from devexplorer.core.records.benchmark import BenchSpec


def specs(arguments: argparse.Namespace, findings: Findings) -> list[BenchSpec]:
    """One specification per run; harmless values where something is wrong. Devices are named later where a kind needs
    several and the arguments name none."""
    name = arguments.benchmark
    if name not in KINDS:
        findings.add(f"there is no benchmark '{name}'; there are {', '.join(KINDS)}")
        return []
    if arguments.target is not None and not KINDS[name].takes_target:
        takers = [kind.name for kind in KINDS.values() if kind.takes_target]
        findings.add(_refusal(f"the target '{arguments.target}'", name, takers))
    for option, kinds in options().values():
        if name not in kinds and getattr(arguments, option.name) is not None:
            findings.add(_refusal(option.flag, name, kinds))
    return KINDS[name].specs(arguments, findings)


def _refusal(what: str, name: str, kinds: list[str]) -> str:
    return f"{what} means nothing to bench {name}; it is for bench {' and '.join(kinds)}"
