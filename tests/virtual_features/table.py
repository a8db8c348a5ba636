"""The table of features in docs/virtual_gpus.md. As a script it writes it: `python tests/virtual_features/table.py`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import virtual_features
from virtual_features import FEATURES, status

PAGE = Path(__file__).parents[2] / "docs" / "virtual_gpus.md"
BEGIN, END = "<!-- features: written by tests/virtual_features/table.py -->", "<!-- end of features -->"


def collect() -> None:
    """Every feature of every module here, in their order."""
    for found in sorted(pkgutil.iter_modules(virtual_features.__path__), key=lambda one: _ORDER.get(one.name, 9)):
        if found.name != "table":
            importlib.import_module(f"virtual_features.{found.name}")


_ORDER = {"tensors": 0, "gradients": 1, "modules": 2, "optimizers": 3, "files": 4, "systems": 5}


def documented() -> dict[str, str]:
    """Feature -> status, as the page has it."""
    rows = PAGE.read_text().split(BEGIN)[1].split(END)[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows if row.startswith("| ")]
    return {name: said for _, name, said in cells[1:]}


def table(statuses: dict[str, str]) -> str:
    """The rows; those that are equal are counted and listed by topic."""
    equal = sum(said == "equal" for said in statuses.values())
    lines = [
        f"{len(statuses)} features: {equal} equal to the CPU, {len(statuses) - equal} refused.",
        "",
        "| topic | feature | on a virtual GPU |",
    ]
    lines += ["|---|---|---|", *(f"| {FEATURES[name].topic} | {name} | {said} |" for name, said in statuses.items())]
    return "\n".join(lines)


def write() -> None:
    from devexplorer.core.virtual.backend import add_virtual_gpus

    add_virtual_gpus("2x Tesla T4")
    collect()
    statuses = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, feature in FEATURES.items():
            statuses[name] = status(feature)
            print(f"{name}: {statuses[name]}", flush=True)
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(statuses)}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    write()
