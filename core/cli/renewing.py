"""What a terminal shows in place of what it showed before. Main thread."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.live import Live


class Renewing:
    """Use as a context; `show` often."""

    def __init__(self, out: Console) -> None:
        self._out, self._size = out, out.size
        self._live = Live(console=out, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Renewing:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def room(self) -> tuple[int, int]:
        """Columns and lines that there are."""
        if self._out.size != self._size:  # the terminal folded the old lines: start again at its top
            self._size = self._out.size
            self._out.clear()
        return self._size.width, self._size.height - 1

    def show(self, lines: Iterable[RenderableType]) -> None:
        """Show this, no more than there is `room` for."""
        self._live.update(Group(*lines), refresh=True)
