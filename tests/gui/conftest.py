"""Guards for tests with Qt: offscreen, garbage collected on the main thread only, no Qt message, no exception in a
slot, no window left."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.gui.widgets.theme import current_theme, set_theme

EXPECTED = "This plugin does not support"
"""The offscreen plugin prints these for windows with a minimum size and for popup menus."""

_ended: list[weakref.ref[QWidget]] = []
"""Windows whose test has ended: nothing may reference them any more."""


@pytest.fixture(autouse=True, scope="module")
def module_ends_its_windows(qapp: QApplication) -> Iterator[None]:
    """A window shared by several tests is closed after the last of them."""
    with _ends_windows(qapp):
        yield


@pytest.fixture(autouse=True)
def quiet_qt(qapp: QApplication, qtlog: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test in which Qt prints a warning or a slot raises; close its windows."""
    raised: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: raised.append(f"{kind.__name__}: {error}"))
    gc.disable()
    with _ends_windows(qapp):
        yield
    assert not raised, f"exceptions in slots: {raised}"
    lines = [record.message for record in qtlog.records if not record.message.startswith(EXPECTED)]  # type: ignore[attr-defined]
    assert not lines, f"Qt said: {lines}"


@contextmanager
def _ends_windows(app: QApplication) -> Iterator[None]:
    """At the end, delete every window created by the test, with its menus and dialogs, and restore the application's
    style and theme."""
    look, theme = (app.font(), app.palette(), app.styleSheet()), current_theme()
    before = set(QApplication.topLevelWidgets())
    yield
    windows = [widget for widget in QApplication.topLevelWidgets() if widget not in before and _is_a_window(widget)]
    for window in windows:
        window.close()
    app.processEvents()
    for window in windows:
        _ended.append(weakref.ref(window))
        if shiboken6.isValid(window):
            shiboken6.delete(window)  # with its children and connections, so that no lambda references it
    if (app.font(), app.palette(), app.styleSheet()) != look:  # a remaining window would be restyled
        app.setFont(look[0])
        app.setPalette(look[1])
        app.setStyleSheet(look[2])
    set_theme(theme)


def _is_a_window(widget: QWidget) -> bool:
    """Excludes widgets that belong to another: a dialog, a menu, the list of a completer, the empty widget of a plot.

    They are deleted with their owner. Some have no parent, and Qt crashes if they are deleted before it."""
    if widget.parent() is not None or widget.windowType() not in (Qt.WindowType.Window, Qt.WindowType.Dialog):
        return False
    return type(widget) is not QWidget or bool(widget.children())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """After all fixtures of a test: fail it if something still references one of its windows."""
    yield
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # pytest would reference them until after this
    gc.collect()
    gc.enable()
    left = [type(window).__name__ for ref in _ended if (window := ref()) is not None]
    _ended.clear()
    if hasattr(sys, "last_value"):
        return  # the traceback of a failed test references its locals
    assert not left, f"windows left behind: {left}"
    if not QApplication.topLevelWidgets():
        # torch's modules and caches, which make a full collection take half a second; no windows are among them
        gc.freeze()
