"""The layouts of the window: what each kind of work has on show, and in which proportions. Data only; main thread.

A part is a panel of the window by its name (`Workbench`). Which tabs a layout has, the tabs say (`TabSpec.layout`).
Proportions are shares of the room, until the user drags. In a low window, as on a laptop, some layouts have the same
panels in another arrangement, so that the pages are high enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QSize, Qt

ACROSS, DOWN = Qt.Orientation.Horizontal, Qt.Orientation.Vertical


@dataclass(frozen=True)
class Split:
    """Parts side by side or one below the other."""

    name: str
    """Under which the sizes that the user gave them are remembered."""
    orientation: Qt.Orientation
    parts: tuple[str | Split, ...]
    shares: tuple[float, ...]
    """Of the room, or in pixels from 1 on; the flexible part takes what is left."""
    least: tuple[float, ...]
    """What a part gives up last, as a share or in pixels."""
    flexible: int

    @property
    def panels(self) -> tuple[str, ...]:
        """Names of all panels in it."""
        return tuple(name for part in self.parts for name in (part.panels if isinstance(part, Split) else (part,)))


@dataclass(frozen=True)
class Layout:
    """One place to work."""

    name: str
    icon: str
    tooltip: str
    root: Split
    more_tabs: tuple[str, ...] = ()
    """Names of tabs of other layouts that it has as well."""
    low: Split | None = None
    """How its panels stand in a low window, where that is another way."""

    def arrangement(self, *, low: bool) -> Split:
        """How its panels stand in a window that is low, or is not."""
        return self.low if low and self.low is not None else self.root

    @property
    def title(self) -> str:
        """What it is called in the window."""
        return self.name.capitalize()


LOW_PX, WIDE_PX = 880, 1280
"""A window is low below this height, if it has this width."""
SLACK_PX = 20
"""So much more or less it takes to be it no longer: at the limit nothing goes to and fro."""


def is_low(window: QSize, *, before: bool) -> bool:
    """Whether a window of that size is low; `before`: it was until now."""
    slack = SLACK_PX if before else 0
    return window.height() < LOW_PX + slack and window.width() >= WIDE_PX - slack


THIRD = 0.54
"""Of the rows above the pages: a third of the whole window."""
PANELS = Split("panels", ACROSS, ("objects", "inspector"), (0, 0.3), (380, 250), 0)
PLOTS = Split("plots", ACROSS, ("memory", "throughput"), (0.5, 0.5), (200, 200), 0)
CENTRE = Split("centre", DOWN, (PANELS, PLOTS), (0.46, 0), (150, THIRD), 1)
WORKSPACE = Split("workspace", ACROSS, ("devices", CENTRE), (276, 0), (240, 500), 1)
WATCH = Split("watch", ACROSS, ("cards", "stack"), (0.42, 0), (300, 300), 1)
EXERCISE = Split("exercise", DOWN, ("exercise", "inspector"), (0, 0.36), (200, 120), 0)
ROW = Split("row", ACROSS, ("devices", "objects"), (276, 0), (240, 280), 1)
BESIDE_IT = Split("rows", DOWN, (ROW, PLOTS, "pages"), (0.4, 0, 0.26), (150, 150, 90), 1)

LOW_ABOVE = Split("low above", ACROSS, ("devices", "objects", "inspector"), (276, 0, 0.25), (240, 380, 250), 1)
LOW_BELOW = Split("low below", ACROSS, ("memory", "throughput", "pages"), (0.23, 0.23, 0), (200, 200, 620), 2)
LOW_BESIDE_IT = Split("low rows", DOWN, (ROW, PLOTS, "pages"), (0.36, 0, 0.35), (150, 150, 150), 1)

LAYOUTS = (
    Layout(
        "explore",
        "explore",
        "Tensors and models: what is where, and moving it",
        Split("rows", DOWN, (WORKSPACE, "pages"), (0, 0.25), (380, 90), 0),
        low=Split("low rows", DOWN, (LOW_ABOVE, LOW_BELOW), (0, 0.47), (200, 0.42), 0),
    ),
    Layout(
        "measure",
        "benchmark",
        "Benchmarks, their history, and what the datasheet promises",
        Split("rows", DOWN, (PLOTS, "pages"), (0, 0.5), (0.42, 120), 0),
    ),
    Layout(
        "monitor",
        "monitor",
        "Every device at a glance, and any quantity over time",
        Split("rows", DOWN, (WATCH, "pages"), (0, 0.36), (260, 100), 0),
    ),
    Layout(
        "learn",
        "learn",
        "Exercises that check themselves, beside what they need",
        Split("columns", ACROSS, (EXERCISE, BESIDE_IT), (0.27, 0), (260, 500), 1),
        ("values", "split", "doctor", "benchmark", "experiments", "device"),
        Split("low columns", ACROSS, (EXERCISE, LOW_BESIDE_IT), (0.27, 0), (260, 500), 1),
    ),
    Layout(
        "remote",
        "machine",
        "Other machines, and all cards of many",
        Split("rows", DOWN, ("pages",), (0,), (260,), 0),
    ),
)
BY_NAME = {layout.name: layout for layout in LAYOUTS}
