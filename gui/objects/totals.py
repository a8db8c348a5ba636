"""Sums over many tensors: per device, dtype and kind; read without the window standing still. Main thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PySide6.QtCore import QObject, QTimer, Signal

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.session import Column, Ints, RowTable
from devexplorer.gui.actions import Held

AT_ONCE = 4_000
"""Rows whose columns are read in well under 5 ms, so at once."""


class Sum(NamedTuple):
    """Some tensors."""

    tensors: int
    bytes: int


class Totals(NamedTuple):
    """What some tensors come to; every tensor once."""

    devices: dict[str, Sum]
    dtypes: dict[str, Sum]
    kinds: dict[str, Sum]
    """`parameter`, `buffer`, `gradient`, `state`, `tensor`."""

    @classmethod
    def of(cls, held: Iterable[Held]) -> Totals:
        """Add up."""
        result = cls({}, {}, {})
        for outline, places in held:
            sizes = outline.bytes[places]
            for devices, found in _sums(outline.column("devices"), places, sizes):
                for device in devices:  # a tensor has one
                    _add(result.devices, device, found)
            for dtype, found in _sums(outline.column("dtype"), places, sizes):
                _add(result.dtypes, dtype or "no dtype", found)
            for kind, found in _sums(outline.column("kind"), places, sizes):
                _add(result.kinds, kind, found)
        return cls(*({name: part[name] for name in sorted(part)} for part in result))

    @property
    def brief(self) -> str:
        """`cpu 1.00 MiB · cuda:0 2.00 MiB`."""
        return " · ".join(f"{device} {bytes_text(result.bytes)}" for device, result in self.devices.items())

    @property
    def words(self) -> str:
        """`cpu 1.00 MiB in 4 tensors · all float32 · incl. 0.50 MiB gradients`."""
        parts = [
            f"{device} {bytes_text(result.bytes)} in {count_text(result.tensors, 'tensor')}"
            for device, result in self.devices.items()
        ]
        if len(self.dtypes) == 1:
            parts.append(f"all {next(iter(self.dtypes))}")
        else:
            parts += [f"{dtype} {bytes_text(result.bytes)}" for dtype, result in self.dtypes.items()]
        training = [
            f"{bytes_text(self.kinds[kind].bytes)} {word}"
            for kind, word in (("gradient", "gradients"), ("state", "optimizer state"))
            if kind in self.kinds
        ]
        if training:
            parts.append("incl. " + ", ".join(training))
        return " · ".join(parts)


def _sums(column: Column, places: Ints, sizes: Ints) -> Iterable[tuple[Any, Sum]]:
    numbers = column.numbers[places]
    counts = np.bincount(numbers, minlength=len(column.codes))
    order = np.argsort(numbers, kind="stable")
    added = np.concatenate(([0], np.cumsum(sizes[order])))[np.concatenate(([0], np.cumsum(counts)))]
    for index, value in enumerate(column.codes):
        if counts[index]:
            yield value, Sum(int(counts[index]), int(added[index + 1] - added[index]))


def _add(sums: dict[str, Sum], name: str, more: Sum) -> None:
    before = sums.get(name, Sum(0, 0))
    sums[name] = Sum(before.tensors + more.tensors, before.bytes + more.bytes)


class Preparing(QObject):
    """Reads the columns of large objects a slice at a time, between other work of the window."""

    ready = Signal()
    """Everything that was wanted last can be added up now."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted: Sequence[RowTable] = ()
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._step)

    def want(self, row_tables: Sequence[RowTable]) -> bool:
        """Whether these can be added up now; if not, `ready` is emitted when they can."""
        self._wanted = [outline for outline in row_tables if len(outline.rows) > AT_ONCE and not outline.is_ready]
        if self._wanted:
            self._timer.start()
        else:
            self._timer.stop()
        return not self._wanted

    def _step(self) -> None:
        if any(outline.step() for outline in self._wanted):
            self._timer.start()
        else:
            self._wanted = ()
            self.ready.emit()
