"""Known bugs of our dependencies: a failure shows that a workaround is still needed, or no longer."""

from __future__ import annotations

import gc
import sys

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot


class _Sender(QObject):
    value = Signal(object)


def test_pyside_keeps_the_reference_counts_of_none(qtbot: QtBot) -> None:
    """PySide6 6.12.0 drops one per void call on CPython 3.10 and 3.11, and aborts after some thousands."""
    label = QLabel()
    qtbot.addWidget(label)
    before = sys.getrefcount(None)
    for number in range(200):
        label.setText(str(number))
    assert abs(sys.getrefcount(None) - before) < 100


def test_large_numbers_cross_signals_as_objects() -> None:
    """`Signal(int)` is a C int: 141 GiB would not pass."""
    sender, seen = _Sender(), []
    sender.value.connect(seen.append)
    sender.value.emit(151_397_597_184)
    assert seen == [151_397_597_184]


def test_the_collector_sleeps_while_the_window_is_open() -> None:
    """Collecting on a worker thread crashes Qt; the heartbeat collects on the main thread."""
    assert not gc.isenabled()
