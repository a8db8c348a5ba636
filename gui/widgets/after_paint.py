"""Does what takes time once the window has shown what there is, so that a click is seen to have done something. Main
thread."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

PAINT_MS = 20
"""Within this time the window is painted and answers."""


def after_paint(owner: QObject, call: Callable[[], object]) -> None:
    """Call once what is shown now has been painted, unless `owner` is gone by then.

    Counted from when events are handled: what came before that can take longer than a paint.
    """
    QTimer.singleShot(0, owner, lambda: QTimer.singleShot(PAINT_MS, owner, call))
