"""One action as the toolbar, the menus, the keyboard and the command palette know it. Main thread; no widgets but
QAction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget

FILE, LAB, PARAMETERS, MODEL, SPLIT, ASK = "File", "Lab", "Parameters", "Mode and optimizer", "Split", "Ask"
MACHINE = "Machine"
"""Menus that actions are in."""
SELECTION_MENUS = (PARAMETERS, MODEL, SPLIT, ASK)
"""Those that are about the selection."""


@dataclass(frozen=True)
class ActionSpec:
    """One action: its texts, its key, why it is disabled (None: it is enabled), what it does, which menu it is in."""

    id: str
    text: str
    tooltip: str
    run: Callable[[], object]
    why_not: Callable[[], str | None] = lambda: None
    key: str = ""
    menu: str = ""
    section: int = 0
    """Within the menu; there is a line between two sections."""


def make_qactions(specs: Sequence[ActionSpec], parent: QWidget) -> dict[str, QAction]:
    """One QAction per specification, with its key; keep them current with `refresh`."""
    actions = {}
    for spec in specs:
        action = QAction(spec.text, parent)
        action.setObjectName(spec.id)
        if spec.key:
            action.setShortcut(QKeySequence(spec.key))
        action.triggered.connect(lambda _checked=False, run=spec.run: run())
        parent.addAction(action)
        actions[spec.id] = action
    return actions


def refresh(specs: Sequence[ActionSpec], actions: dict[str, QAction]) -> None:
    """Enable what can be done now; the tooltip of a disabled action says why it is."""
    for spec in specs:
        action, reason = actions[spec.id], spec.why_not()
        if action.isEnabled() != (reason is None):
            action.setEnabled(reason is None)
        key = f" ({spec.key})" if spec.key else ""
        tooltip = reason or f"{spec.tooltip}{key}"
        if action.toolTip() != tooltip:
            action.setToolTip(tooltip)


def fill_menu(menu: QMenu, title: str, specs: Sequence[ActionSpec], actions: dict[str, QAction]) -> None:
    """Add the actions of the menu called `title`, section by section."""
    listed = sorted((spec for spec in specs if spec.menu == title), key=lambda spec: spec.section)
    for _, section in groupby(listed, key=lambda spec: spec.section):
        if not menu.isEmpty():
            menu.addSeparator()
        for spec in section:
            menu.addAction(actions[spec.id])
