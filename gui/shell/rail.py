"""The slim rail at the left that switches between the layouts. Main thread only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QToolButton

from devexplorer.gui.shell.layouts import Layout
from devexplorer.gui.widgets import Role, current_theme, font, icon, theme_changed, vbox

WIDTH_PX = 60


class Rail(QFrame):
    """A button for each layout; the action table has the keys."""

    chosen = Signal(str)
    """Name of the layout."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        super().__init__()
        self.setObjectName("rail")
        self.setAccessibleName("Layouts")
        self.setFixedWidth(WIDTH_PX)
        self._icons = {layout.name: layout.icon for layout in layouts}
        self.buttons: dict[str, QToolButton] = {}
        self._group = QButtonGroup(self)
        for number, layout in enumerate(layouts, start=1):
            button = QToolButton()
            button.setProperty("look", "rail")
            button.setText(layout.title)
            button.setFont(font(Role.LABEL))
            button.setCheckable(True)
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
            button.setIconSize(QSize(20, 20))
            button.setFixedSize(WIDTH_PX - 8, 52)
            button.setToolTip(f"{layout.tooltip} (Alt+{number})")
            button.setAccessibleName(layout.title)
            button.clicked.connect(partial(self.chosen.emit, layout.name))
            self._group.addButton(button)
            self.buttons[layout.name] = button
        vbox(*self.buttons.values(), None, spacing=4, margins=(4, 8, 4, 8), parent=self)
        theme_changed.connect(self._draw_icons)
        self._draw_icons()

    def show_chosen(self, name: str) -> None:
        """Mark the layout that is on show. Tab goes to its button, from there the arrows to the others."""
        self.buttons[name].setChecked(True)
        for button in self.buttons.values():
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus if button.isChecked() else Qt.FocusPolicy.NoFocus)

    def _draw_icons(self) -> None:
        for name, button in self.buttons.items():
            button.setIcon(icon(self._icons[name], current_theme().soft, size=20))
