"""A splitter whose parts keep the sizes that the user gave them, but for one that takes the rest. Main thread only.

Qt's own shares every change of the size among all parts and does not give back what it took: after a smaller window, or
a banner that came and went, the parts are no longer as they were left.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMoveEvent, QResizeEvent
from PySide6.QtWidgets import QSplitter, QWidget


class KeptSplitter(QSplitter):
    """`flexible`: index of the part that takes the rest. `kept` is what the user wants, `least` what a part gives up
    last: pixels, or below 1 a share of the room."""

    moved = Signal()
    """It is somewhere else now, with all that is in it."""

    def __init__(
        self, orientation: Qt.Orientation, kept: Sequence[float], least: Sequence[float], flexible: int, *parts: QWidget
    ) -> None:
        super().__init__(orientation, childrenCollapsible=False)
        self.kept, self._least, self._flexible = list(kept), tuple(least), flexible
        self.shares = tuple(kept)
        """What was kept at first."""
        self._shared: list[int] = []
        """As the sizes came out last: a part can need more than its share."""
        self._needs: dict[int, int] = {}
        for part in parts:
            self.addWidget(part)
        self.splitterMoved.connect(self._moved)

    def keep(self, sizes: Sequence[float]) -> None:
        """These are the sizes that the user wants."""
        self.kept = list(sizes)
        self._share()

    def need(self, part: int, pixels: int) -> None:
        """A part needs no more than that: more of its share it does not get, until the user drags."""
        if self._needs.get(part) != pixels:
            self._needs[part] = pixels
            self._share()

    def _moved(self) -> None:
        """The user has dragged: only what that changed is a new wish; the others may be smaller than wanted for want of
        room."""
        self.kept = [
            now if now != before else kept
            for now, before, kept in zip(self.sizes(), self._shared, self.kept, strict=True)
        ]
        self._shared = self.sizes()

    def _share(self) -> None:
        upright = self.orientation() == Qt.Orientation.Vertical
        room = (self.height() if upright else self.width()) - (self.count() - 1) * self.handleWidth()
        kept = [
            max(1, min(self._needs[at], round(size * room))) if size < 1 and at in self._needs else size
            for at, size in enumerate(self.kept)
        ]
        self.setSizes(share(room, kept, self._least, self._flexible))
        self._shared = self.sizes()

    def moveEvent(self, event: QMoveEvent) -> None:
        super().moveEvent(event)
        self.moved.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._share()


def share(room: int, kept: Sequence[float], least: Sequence[float], flexible: int) -> list[int]:
    """Divide `room`: each part gets what is kept for it, the flexible one the rest; both in pixels, or below 1 as
    shares of the room.

    A share is no less than its least. Where the rest is too little for the flexible one, the others give up what they
    have above their least, each in proportion to that.
    """
    sizes, least = ([int(size if size >= 1 else size * room) for size in wanted] for wanted in (kept, least))
    sizes = [max(size, least[at]) if kept[at] < 1 else size for at, size in enumerate(sizes)]
    sizes[flexible] = room - sum(size for index, size in enumerate(sizes) if index != flexible)
    lacking = least[flexible] - sizes[flexible]
    spare = [0 if index == flexible else max(size - least[index], 0) for index, size in enumerate(sizes)]
    if lacking > 0 and any(spare):
        in_all = sum(spare)
        given = [min(lacking, in_all) * item // in_all for item in spare]
        sizes = [size - gift for size, gift in zip(sizes, given, strict=True)]
        sizes[flexible] += sum(given)
    return [max(size, 0) for size in sizes]
