"""The filter of the object tree: words that name, type, dtype or device must hold. Main thread.

The source model finds the matches in one pass over plain Python objects; Qt then asks only for rows that it will show.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex, QSortFilterProxyModel

from devexplorer.gui.item_models.objects import ObjectsModel


class ObjectsFilter(QSortFilterProxyModel):
    """Shows what matches every word, what that is in, and what is in it."""

    def __init__(self, source: ObjectsModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._source = source
        self._words: tuple[str, ...] = ()
        self._shown: set[int] = set()
        self._opened: set[int] = set()
        self.setSourceModel(source)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that are looked for, in lower case."""
        return self._words

    def set_text(self, text: str) -> None:
        """Look for the words of `text`; none: show everything."""
        words = tuple(text.lower().split())
        if words != self._words:
            self._words = words
            self.refresh()

    def refresh(self) -> None:
        """Match again, after the objects or the words changed."""
        if self._words:
            self._shown, self._opened = self._source.matching(self._words)
        self.invalidate()  # the one way to filter again that no Qt since 6.8 deprecates

    def opened(self) -> Iterator[QModelIndex]:
        """Indexes that have to be expanded for every match to be seen, parents first."""
        waiting = [QModelIndex()]
        while waiting:
            parent = waiting.pop(0)
            for at in range(self.rowCount(parent)):
                index = self.index(at, 0, parent)
                if self.mapToSource(index).internalId() in self._opened:
                    yield index
                    waiting.append(index)

    def filterAcceptsRow(self, source_row: int, source_parent: QModelIndex | QPersistentModelIndex) -> bool:
        return not self._words or self._source.number_of(source_row, source_parent) in self._shown
