"""The row of buttons at the top: a view of the action table with menus for what needs a choice. Main thread only.

Where there is no room for all, some buttons lose their words, then the least used ones move into the menu at the right
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QWidget

from devexplorer.gui.actions import FILE, LAB, ActionSpec, Controller, fill_menu
from devexplorer.gui.shell.bars.menus import CASTS, fill_move_menu, fill_selection_menus
from devexplorer.gui.widgets import (
    ButtonMenu,
    Role,
    current_theme,
    font,
    hbox,
    icon,
    push_button,
    theme_changed,
    why_fixed,
)

HEIGHT_PX, GAP_PX = 44, 8


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
        self._icons: dict[QPushButton, str] = {}
        self._words: dict[QPushButton, str] = {}
        """The text of each button where there is room for it, in the order of the row."""
        self._layout, self._gaps = hbox(margins=(12, 0, 12, 0), parent=self), 0
        self.machine_button = self._menu_button("Machine", "machine", "")
        self._gap()
        self.build = self._menu_button("Build", "build", "Build a sample model on the CPU")
        tensor = self._action_button("new_tensor", "Tensor")
        self.open_button = self._menu_button("File", "open", "Open models, load and save tensors, recordings")
        fill_menu(self.open_button.menu(), FILE, specs, actions)
        self._gap()
        self.move_button = self._menu_button("Move to", "move", "", primary=True)
        self.copy_button = self._menu_button("Copy to", "copy", "")
        self.cast_button = self._menu_button("dtype", "", "Change the dtype of the selection")
        self._gap()
        forward = self._action_button("forward", "Forward")
        backward = self._action_button("backward", "Backward")
        self.check = self._action_button("check", "Check")
        self.undo, redo = self._action_button("undo", ""), self._action_button("redo", "")
        self.undo.setAccessibleName("Undo")
        redo.setAccessibleName("Redo")
        self._shortened = [tensor, backward, self.machine_button]
        self._gap()
        self.lab_button = self._menu_button("Lab", "", "Values, parameters, optimizer, splits, questions")
        fill_selection_menus(self.lab_button.menu(), specs, actions)
        fill_menu(self.lab_button.menu(), LAB, specs, actions)
        self.benchmark = self._action_button("benchmark", "Benchmark")
        self._layout.addStretch(1)
        self.tour_button = self._action_button("tour", "")
        self.tour_button.setProperty("look", "quiet")
        self.palette_button = self._button("", "search", "Every action, by its first letters (Ctrl+K)")
        self.palette_button.setProperty("look", "quiet")
        self.palette_button.setAccessibleName("Commands")
        self.theme_button = self._action_button("theme", "")
        self.theme_button.setAccessibleName("Next theme")
        for dtype in CASTS:
            self.cast_button.menu().addAction(dtype, partial(controller.cast, dtype))
        self.more_button = self._menu_button("»", "", "More actions")
        self.more_button.setText("»")
        self.more_button.setProperty("look", "quiet")
        self.more_button.setAccessibleName("More actions")
        self.more_button.menu().aboutToShow.connect(self._fill_more)
        self.more_button.hide()
        self._leaving = [
            self.theme_button, self.tour_button, self.cast_button, backward, self.copy_button, tensor, self.lab_button,
            self.check, redo, self.undo, forward,
        ]  # fmt: skip
        """What leaves the row where there is no room, the first one first."""
        theme_changed.connect(self._draw_icons)
        self._draw_icons()
        self.refresh_menus()

    # --- making buttons
    # -------------------------------------------------------------------------------------------------

    def _button(self, text: str, icon_name: str, tip: str) -> QPushButton:
        button = push_button(text, tip=tip)
        button.setFont(font(Role.TEXT))
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.setIconSize(QSize(16, 16))
        self._words[button] = text
        if icon_name:
            self._icons[button] = icon_name
        self._layout.addWidget(button)
        return button

    def _menu_button(self, text: str, icon_name: str, tip: str, *, primary: bool = False) -> QPushButton:
        button = self._button(f"{text} ▾", icon_name, tip)
        button.setAccessibleName(text)
        if primary:
            button.setProperty("look", "primary")
        menu = ButtonMenu(button)
        menu.setToolTipsVisible(True)
        button.setMenu(menu)
        return button

    def _action_button(self, action_id: str, text: str) -> QPushButton:
        """A button that follows one action of the table: enabled, tooltip with the reason, click."""
        action = self._actions[action_id]
        icon_name = {"new_tensor": "tensor", "tour": "play"}.get(action_id, action_id)
        button = self._button(text, icon_name, action.toolTip())
        button.setAccessibleName(text or action.text())
        button.clicked.connect(lambda: self._actions[button.property("action")].trigger())
        button.setProperty("action", action_id)

        def follow() -> None:
            current = self._actions[button.property("action")]
            button.setEnabled(current.isEnabled())
            button.setToolTip(current.toolTip())

        action.changed.connect(follow)
        follow()
        return button

    def name_machine(self, words: str, *, alone: bool) -> None:
        """Have its button say which machine is on show; `alone`: there is only this one, which needs no name."""
        button = self.machine_button
        if words != self._words[button]:
            self._words[button] = words
            button.setText(words)
            self._shortened = [one for one in self._shortened if one is not button] + [button] * alone
            self._fit()

    def _gap(self) -> None:
        self._gaps += 1
        self._layout.addSpacing(GAP_PX)

    # --- where there is less room
    # ----------------------------------------------------------------------------------------

    def _fit(self) -> None:
        """Leave words away, then buttons, until the rest has room; icons, names and tooltips stay, and what left is in
        the menu."""
        for button in self._shortened:
            button.setText(self._words[button])
        for button in self._leaving:
            button.show()
        self.more_button.hide()
        for button in reversed(self._shortened):
            if self._lacks_room():
                button.setText("▾" if button.menu() is not None else "")
        for button in self._leaving:
            if self._lacks_room():
                button.hide()
                self.more_button.show()

    def _lacks_room(self) -> bool:
        self._layout.invalidate()
        return self._layout.minimumSize().width() > self.width()

    @property
    def overflow(self) -> list[QPushButton]:
        """The buttons that are in the menu now, in the order of the row."""
        return [button for button in self._words if button in self._leaving and button.isHidden()]

    def _fill_more(self) -> None:
        menu = self.more_button.menu()
        menu.clear()
        for button in self.overflow:
            if button.menu() is not None:
                submenu = menu.addMenu(button.menu())
                submenu.setText(button.accessibleName())
                submenu.setEnabled(button.isEnabled())
                submenu.setToolTip(button.toolTip())
            else:
                menu.addAction(self._actions[button.property("action")])

    def minimumSizeHint(self) -> QSize:
        goes: set[QWidget | None] = {*self._leaving, self.more_button}
        stays = [button.sizeHint().width() for button in self._words if button not in goes]
        parts = len(stays) + self._gaps + 2  # the stretch, the button of the menu
        room = sum(stays) + self._gaps * GAP_PX + self.more_button.sizeHint().width() + self._layout.spacing() * parts
        margins = self._layout.contentsMargins()
        return QSize(room + margins.left() + margins.right(), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._fit()

    # --- keeping them current
    # -------------------------------------------------------------------------------------------

    def _draw_icons(self) -> None:
        theme = current_theme()
        for button, name in self._icons.items():
            primary = button.property("look") == "primary"
            button.setIcon(icon(name, theme.accent_text if primary else theme.soft, theme.disabled))

    def refresh_menus(self) -> None:
        """The engine came up, or devices changed: fill Build, Move to and Copy to."""
        recipes = self._state.engine.recipes if self._state.engine is not None else {}
        menu = self.build.menu()
        menu.clear()
        for name, description in recipes.items():
            action = menu.addAction(f"{name}\t{description}", partial(self._controller.build, name))
            action.setToolTip(description)
        fixed = why_fixed(self._state)
        self.build.setEnabled(bool(recipes) and not fixed)
        self.build.setToolTip(fixed or "Build a sample model on the CPU")
        for button, copy in ((self.move_button, False), (self.copy_button, True)):
            fill_move_menu(button.menu(), self._state, partial(self._controller.move, copy=copy), keys=not copy)

    def refresh(self) -> None:
        """Enable moving, copying and casting, or say in the tooltip why not; have the benchmark button stop what
        runs."""
        controller = self._controller
        for button, why_not, tip in (
            (
                self.move_button,
                controller.why_no_move,
                "Move the selection to a device: the name then means the result",
            ),
            (self.copy_button, controller.why_no_selection, "Make a second object on a device; the original stays"),
            (self.cast_button, controller.why_no_selection, "Change the dtype of the selection"),
        ):
            reason = why_not()
            button.setEnabled(reason is None)
            button.setToolTip(reason or tip)
        running = controller.why_no_stop() is None
        wanted = "stop" if running else "benchmark"
        if self.benchmark.property("action") == wanted:
            return
        self.benchmark.setProperty("action", wanted)
        if running:  # as wide as before: nothing else moves or shrinks
            self.benchmark.setMinimumWidth(self.benchmark.sizeHint().width())
        self.benchmark.setText("Stop" if running else "Benchmark")
        self.benchmark.setAccessibleName("Stop benchmark" if running else "Benchmark")
        if not running:
            self.benchmark.setMinimumWidth(0)
        self._icons[self.benchmark] = wanted
        self.benchmark.setEnabled(True)
        self.benchmark.setToolTip(self._actions[wanted].toolTip())
        self._draw_icons()
        self._fit()
