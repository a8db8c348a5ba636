"""The row of buttons at the top: those of the layout that is shown, between what every layout has. Main thread only.

Where there is no room for all, some buttons lose their words, then the least used ones move into the menu at the right
end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QWidget

from devexplorer.gui.actions import FILE, ActionSpec, Controller, fill_menu
from devexplorer.gui.shell.bars.menus import fill_cast_menu, fill_move_menu
from devexplorer.gui.widgets import (
    ButtonMenu,
    Role,
    current_theme,
    font,
    hbox,
    holder,
    icon,
    push_button,
    theme_changed,
    why_fixed,
)

HEIGHT_PX, GAP_PX, EDGE_PX = 44, 8, 12
GROUPS = {
    "create": ("build", "new_tensor"),
    "place": ("move", "copy", "cast"),
    "run": ("forward", "backward", "check", "benchmark"),
    "changes": ("undo", "redo"),
    "watch": ("record", "page alerts"),
    "export": ("report", "export csv", "export png"),
    "link": ("connect", "reconnect", "disconnect"),
    "fleet": ("fleet_hosts",),
}
"""Buttons with a gap before them, from left to right: ids of actions, and `MENUS`."""
MENUS = ("build", "move", "copy", "cast")
GROUPS_OF_LAYOUT = {
    "explore": ("create", "place", "run", "changes"),
    "measure": ("export",),
    "monitor": ("watch", "export"),
    "learn": ("create", "place", "run", "changes"),
    "remote": ("link", "fleet"),
}
ICONS = {
    "new_tensor": "tensor", "forward": "forward", "backward": "backward", "check": "check", "benchmark": "benchmark",
    "undo": "undo", "redo": "redo", "page alerts": "warning", "connect": "machine",
}  # fmt: skip
"""Of the actions that have one."""
WORDS = {"new_tensor": "Tensor", "undo": "", "redo": "", "page alerts": "Alerts"}
"""On buttons whose words are not those of the action."""
INSTEAD = {"record": "stop_recording"}
"""What a button does while that can be done."""
SHORTENED = ("machine", "backward", "new_tensor")
"""What loses its words where there is no room, the first one first."""
LEAVING = ("cast", "backward", "copy", "new_tensor", "check", "redo", "undo", "forward", "export png", "export csv",
           "fleet_hosts", "disconnect", "reconnect")  # fmt: skip
"""What leaves the row where there is still no room, the first one first."""


class Toolbar(QFrame):
    """Buttons of actions follow these; menus list what there is to choose from."""

    def __init__(
        self,
        controller: Controller,
        specs: Sequence[ActionSpec],
        actions: dict[str, QAction],
    ) -> None:
        super().__init__()
        self.setObjectName("toolbar")
        self.setFixedHeight(HEIGHT_PX)
        self._controller, self._state = controller, controller.state
        self._actions = actions
        self.buttons: dict[str, QPushButton] = {}
        """Those that were made, by what they are for."""
        self._icons: dict[str, str] = {}
        self._words: dict[str, str] = {}
        """The text of each button where there is room for it."""
        self._groups: dict[str, QWidget] = {}
        """Those that a layout has shown."""
        self._named = False
        """Whether the words of the button of machines have to stay."""
        self.open_button = self._menu_button("file", "File", "open", "Open models, load and save tensors, recordings")
        fill_menu(self.open_button.menu(), FILE, specs, actions)
        self.more_button = self._menu_button("more", "More actions", "", "More actions")
        self.more_button.setText("»")
        self.more_button.setProperty("look", "quiet")
        self.more_button.menu().aboutToShow.connect(self._fill_more)
        self.more_button.hide()
        self.palette_button = self._button("search", "", "search", "Every action, by its first letters (Ctrl+K)")
        self.palette_button.setProperty("look", "quiet")
        self.palette_button.setAccessibleName("Commands")
        self._row = hbox(spacing=GAP_PX)
        self._layout = hbox(
            self.open_button, self._row, None, self.more_button, self.palette_button,
            margins=(EDGE_PX, 0, EDGE_PX, 0), parent=self,
        )  # fmt: skip
        theme_changed.connect(self._draw_icons)
        self.show_layout("explore")  # whose menus are kept current from now on

    def show_layout(self, name: str) -> None:
        """Have the buttons of that layout."""
        shown = GROUPS_OF_LAYOUT[name]
        for group in shown:
            if group not in self._groups:
                self._add_group(group)
        for group, widget in self._groups.items():
            widget.setVisible(group in shown)
        self._fit()

    # --- making buttons

    def _add_group(self, name: str) -> None:
        order = list(GROUPS)
        before = [group for group in order[: order.index(name)] if group in self._groups]
        row = hbox(margins=(GAP_PX, 0, 0, 0))
        for each in GROUPS[name]:
            if each in MENUS or each in self._actions:  # those of a feature that was taken out are not
                row.addWidget(self._tool(each))
        self._groups[name] = holder(row)
        self._row.insertWidget(len(before), self._groups[name])
        self._draw_icons()

    def _tool(self, name: str) -> QPushButton:
        if name == "build":
            return self._menu_button(name, "Build", "build")
        if name == "move":
            return self._menu_button(name, "Move to", "move", primary=True)
        if name == "copy":
            return self._menu_button(name, "Copy to", "copy")
        if name == "cast":
            casts = self._menu_button(name, "dtype", "")
            casts.menu().aboutToShow.connect(partial(fill_cast_menu, casts.menu(), self._controller))
            return casts
        return self._action_button(name)

    def _button(self, name: str, text: str, icon_name: str, tip: str) -> QPushButton:
        button = push_button(text, tip=tip)
        button.setFont(font(Role.TEXT))
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.setIconSize(QSize(16, 16))
        self.buttons[name], self._words[name] = button, text
        if icon_name:
            self._icons[name] = icon_name
        return button

    def _menu_button(
        self, name: str, text: str, icon_name: str, tip: str = "", *, primary: bool = False
    ) -> QPushButton:
        button = self._button(name, f"{text} ▾", icon_name, tip)
        button.setAccessibleName(text)
        if primary:
            button.setProperty("look", "primary")
        menu = ButtonMenu(button)
        menu.setToolTipsVisible(True)
        button.setMenu(menu)
        return button

    def _action_button(self, name: str) -> QPushButton:
        """A button that follows one action of the table: enabled, tooltip with the reason, click."""
        action = self._actions[name]
        instead = self._actions.get(INSTEAD.get(name, ""), action)
        words = WORDS.get(name, action.text())
        button = self._button(name, words, ICONS.get(name, ""), "")
        button.clicked.connect(lambda: (instead if instead.isEnabled() else action).trigger())

        def follow() -> None:
            shown = instead if instead.isEnabled() else action
            button.setEnabled(shown.isEnabled())
            button.setToolTip(shown.toolTip())
            button.setAccessibleName(shown.text().removesuffix("…"))
            now = words if shown is action else "Stop"
            if instead is not action and button.text() != now:
                button.setMinimumWidth(button.sizeHint().width())  # of the longer words: nothing beside it moves
                self._words[name] = now
                button.setText(now)

        action.changed.connect(follow)
        instead.changed.connect(follow)
        follow()
        return button

    def add_machine_button(self) -> QPushButton:
        """One with a menu, before all others."""
        button = self._menu_button("machine", "Machine", "machine")
        self.buttons = {"machine": button, **self.buttons}
        self._layout.insertWidget(0, button)
        self._draw_icons()
        return button

    def name_machine(self, words: str, needed: bool) -> None:
        """Have its button say which machine is shown; not `needed`: there is only this one."""
        if words != self._words["machine"]:
            self._words["machine"], self._named = words, needed
            self._fit()

    # --- where there is less room

    def _fit(self) -> None:
        """Leave words away, then buttons, until the rest has room; icons, names and tooltips stay, and what left is in
        the menu."""
        for name, button in self.buttons.items():
            if name != "more":
                button.setText(self._words[name])
                button.show()
        self.more_button.hide()
        for name in SHORTENED:
            if name in self.buttons and self._lacks_room() and not (name == "machine" and self._named):
                self.buttons[name].setText("▾" if name == "machine" else "")
        for name in LEAVING:
            leaving = self.buttons.get(name)
            if leaving is not None and leaving.isVisibleTo(self) and self._lacks_room():
                leaving.hide()
                self.more_button.show()

    def _lacks_room(self) -> bool:
        return self._width_of(self.buttons) > self.width()

    def _width_of(self, names: Iterable[str]) -> int:
        """What those of these buttons need that are shown; Qt's layouts would answer for words of before."""
        shown = [self.buttons[name] for name in names if self.buttons[name].isVisibleTo(self)]
        groups = sum(group.isVisibleTo(self) for group in self._groups.values())
        return sum(button.sizeHint().width() + GAP_PX for button in shown) + (groups + 1) * GAP_PX + 2 * EDGE_PX

    @property
    def overflow(self) -> list[QPushButton]:
        """The buttons that are in the menu now, in the order of the row."""
        return [button for name, button in self.buttons.items() if name in LEAVING and button.isHidden()]

    def _fill_more(self) -> None:
        menu = self.more_button.menu()
        menu.clear()
        for name, button in self.buttons.items():
            if button not in self.overflow:
                continue
            if button.menu() is not None:
                submenu = menu.addMenu(button.menu())
                submenu.setText(button.accessibleName())
                submenu.setEnabled(button.isEnabled())
                submenu.setToolTip(button.toolTip())
            else:
                menu.addAction(self._actions[name])

    def minimumSizeHint(self) -> QSize:
        """What stays in every layout, and the button of the menu."""
        room = self._width_of(name for name in self.buttons if name not in LEAVING)
        if self.more_button.isHidden():
            room += self.more_button.sizeHint().width() + GAP_PX
        machine = self.buttons.get("machine")
        if machine is not None and not self._named:
            room -= machine.fontMetrics().horizontalAdvance(machine.text().removesuffix("▾"))
        return QSize(room, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._fit()

    # --- keeping them current

    def _draw_icons(self) -> None:
        theme = current_theme()
        for name, icon_name in self._icons.items():
            button = self.buttons[name]
            primary = button.property("look") == "primary"
            button.setIcon(icon(icon_name, theme.accent_text if primary else theme.soft, theme.disabled))

    def refresh_menus(self) -> None:
        """The engine came up, or devices changed: fill Build, Move to and Copy to."""
        recipes = self._state.engine.recipes if self._state.engine is not None else {}
        menu = self.buttons["build"].menu()
        menu.clear()
        for name, description in recipes.items():
            action = menu.addAction(f"{name}\t{description}", partial(self._controller.build, name))
            action.setToolTip(description)
        fixed = why_fixed(self._state)
        self.buttons["build"].setEnabled(bool(recipes) and not fixed)
        self.buttons["build"].setToolTip(fixed or "Build a sample model on the CPU")
        for button, copy in ((self.buttons["move"], False), (self.buttons["copy"], True)):
            fill_move_menu(button.menu(), self._controller, copy=copy)

    def refresh(self) -> None:
        """Enable moving, copying and casting, or say in the tooltip why not."""
        controller = self._controller
        for name, why_not, tip in (
            ("move", controller.why_no_move, "Move the selection to a device: the name then means the result"),
            ("copy", controller.why_no_selection, "Make a second object on a device; the original stays"),
            ("cast", controller.why_no_selection, "Change the dtype of the selection"),
        ):
            reason = why_not()
            self.buttons[name].setEnabled(reason is None)
            self.buttons[name].setToolTip(reason or tip)
