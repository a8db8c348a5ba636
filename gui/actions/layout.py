"""Layouts of the window as their folders describe them: which panels, side by side or one below the other, in which
proportions. Data only; main thread.

A part is a panel of the window by its name (`Workbench`). Which tabs a layout has, the tabs say (`TabSpec.layout`).
Proportions are shares of the room, until the user drags. In a low window, as on a laptop, some layouts have the same
panels in another arrangement, so that the pages are high enough.
"""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Qt

ACROSS, DOWN = Qt.Orientation.Horizontal, Qt.Orientation.Vertical


class PanelSplit(msgspec.Struct, frozen=True):
    """Parts side by side or one below the other."""

    name: str
    """Under which the sizes that the user gave them are remembered."""
    orientation: Qt.Orientation
    parts: tuple[str | PanelSplit, ...]
    shares: tuple[float, ...]
    """Of the room, or in pixels from 1 on; the flexible part takes what is left."""
    least: tuple[float, ...]
    """What a part gives up last, as a share or in pixels."""
    flexible: int

    @property
    def panels(self) -> tuple[str, ...]:
        """Names of all panels in it."""
        return tuple(name for part in self.parts for name in (part.panels if isinstance(part, PanelSplit) else (part,)))


class Layout(msgspec.Struct, frozen=True):
    """One place to work."""

    name: str
    icon: str
    tooltip: str
    root: PanelSplit
    low: PanelSplit | None = None
    """How its panels stand in a low window, where that is another way."""
    order: int = 0
    """Among the layouts: the smallest first."""
    unmeasured: PanelSplit | None = None
    """How they stand in a window that is not low while the plot of throughput has nothing to show."""

    def arrangement(self, *, low: bool, measured: bool = True) -> PanelSplit:
        """How its panels stand in a window that is low, or is not, and with or without something `measured`."""
        if low and self.low is not None:
            return self.low
        if not measured and self.unmeasured is not None:
            return self.unmeasured
        return self.root

    @property
    def title(self) -> str:
        """What it is called in the window."""
        return self.name.capitalize()


PLOTS = PanelSplit("plots", ACROSS, ("memory", "throughput"), (0.5, 0.5), (200, 200), 0)
