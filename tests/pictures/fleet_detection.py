"""Draws how often a slow card is found over how slow it is, from the table of tests/benchmarks/fleet_detection.py.

    python tests/pictures/fleet_detection.py docs/fleet_detection.csv docs/pictures/fleet-detection.png

Needs no display and no GPU. Everything in it is simulated, and says so.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.gui.charts.size_curve import Series, SizeCurve
from devexplorer.gui.plots.curves import Unit
from devexplorer.gui.widgets import vbox
from devexplorer.gui.widgets.theme import LIGHT, apply, prepare

SIZE_PX = (1080, 720)
PERCENT = (Unit("% found", 1.0),)
CURVES = (  # rule, cards, history; name, colour, mark
    ("devexplorer", "64", "True", "own history", 2, ""),
    ("devexplorer", "64", "False", "64 cards", 0, ""),
    ("devexplorer", "8", "False", "8 cards", 0, "ring"),
    ("devexplorer", "4", "False", "4 cards", 0, "square"),
    ("0.95 of the median", "64", "False", "0.95 of median", 1, ""),
    ("1/1.1 of the median", "64", "False", "1/1.1 of median", 3, ""),
    ("0.75 of the best", "64", "False", "0.75 of best", 5, ""),
)


def series(rows: list[dict[str, str]], spread: str) -> list[Series]:
    """The curves of one spread."""
    found: defaultdict[tuple[str, str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    for row in rows:
        if row["spread_percent"] == spread:
            share = 100 * int(row["found"]) / int(row["fleets"])
            slower = round(100 * (1 - float(row["factor"])), 1)
            found[row["rule"], row["cards"], row["history"]].append((slower, share, share, share))
    return [
        Series(name, colour, tuple(sorted(found[rule, cards, history])), simulated=True, mark=mark)
        for rule, cards, history, name, colour, mark in CURVES
    ]


def main(table: Path, picture: Path) -> None:
    """Draw."""
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    qt = QApplication([])
    prepare(qt)
    apply(qt, LIGHT)
    page = QWidget()
    charts = []
    for spread in ("1.5", "3.0"):
        chart = SizeCurve(f"Cards found, spread {spread} %", PERCENT)
        chart.set_axis("slowness", "{:g} %".format, f"healthy σ {spread} %")
        chart.set_curves(series(rows, spread))
        charts.append((chart, 1))
    vbox(*charts, spacing=8, margins=8, parent=page)
    page.resize(*SIZE_PX)
    page.setFocus()
    page.show()
    for _ in range(5):
        qt.processEvents()
    if not page.grab().save(str(picture)):
        raise SystemExit(f"cannot write {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
