"""Guards for tests with Qt: offscreen, garbage collected on the main thread only, no Qt message, no exception in a slot, no window left."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest
from PySide6.QtWidgets import QApplication

EXPECTED = "This plugin does not support"
"""The offscreen plugin says so of windows with a smallest size and of menus that pop up."""


@pytest.fixture(autouse=True)
def quiet_qt(qapp: QApplication, qtlog: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test in which Qt complains, or a slot raises."""
    raised: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: raised.append(f"{kind.__name__}: {error}"))
    gc.disable()
    gc.freeze()  # what is there already is not looked at again: torch and its like make a full collection take half a second
    look = qapp.font(), qapp.palette(), qapp.styleSheet()
    before = set(QApplication.topLevelWidgets())
    yield
    for widget in set(QApplication.topLevelWidgets()) - before:
        widget.close()
        # No deleteLater: an event loop of a later test would carry it out, for pyqtgraph's own widgets too, and Qt crashes in their
        # scene. The collection below takes what nobody holds any more.
    if (qapp.font(), qapp.palette(), qapp.styleSheet()) != look:  # a window that stays would be styled anew
        qapp.setFont(look[0])
        qapp.setPalette(look[1])
        qapp.setStyleSheet(look[2])
    qapp.processEvents()
    gc.collect()
    gc.enable()
    assert not raised, f"exceptions in slots: {raised}"
    lines = [record.message for record in qtlog.records if not record.message.startswith(EXPECTED)]  # type: ignore[attr-defined]
    assert not lines, f"Qt said: {lines}"
