"""A user in the whole window, with clicks and keys: menus, the tree, dialogs, pages. Counts the clicks of each path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QCheckBox,
    QComboBox,
    QDialog,
    QLineEdit,
    QMenu,
    QPushButton,
    QWidget,
)

from fakes.window import Driver

DLG = TypeVar("DLG", bound=QDialog)
CTRL, SHIFT, PLAIN = (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.NoModifier,
)
LEFT = Qt.MouseButton.LeftButton


class Hands(Driver):
    """`longest` is the maximum number of clicks to reach a control through menus, pages or the palette."""

    longest = 0

    def _went(self, clicks: int) -> None:
        self.longest = max(self.longest, clicks)

    # --- menus, pages, palette

    def menu(self, button: QPushButton, *words: str) -> None:
        """Click a button and then, level by level, the menu items that start with these texts."""
        assert button.isEnabled(), button.toolTip()
        QTest.mouseMove(button)  # Qt ignores a click where the pointer was when the menu opened
        QTimer.singleShot(0, lambda: _pick(button.menu(), words))
        self.click(button)
        QTest.mouseMove(self.window, QPoint(1, 1))  # away from the next menu
        self._went(1 + len(words))

    def context(self, *words: str) -> None:
        """A line of the context menu of the selection."""
        self.window.objects.context_menu_requested.emit(QPoint(10, 10))
        menus = (one for one in QApplication.topLevelWidgets() if isinstance(one, QMenu) and one.isVisible())
        _pick(next(menus), words)
        QTest.mouseMove(self.window, QPoint(1, 1))
        self._went(1 + len(words))

    def palette(self, words: str) -> None:
        """Ctrl+K, the text, Enter: counts as three clicks."""
        self.focus_tree()
        QTest.keyClick(self.window, Qt.Key.Key_K, CTRL)
        field = self._palette_field()
        QTest.keyClicks(field, words)
        QTest.keyClick(field, Qt.Key.Key_Return)
        self._went(3)

    def _palette_field(self) -> QLineEdit:
        palette = next(one for one in reversed(self.window.findChildren(QWidget, "palette")) if one.isVisible())
        field: QLineEdit = palette.field  # type: ignore[attr-defined]
        return field

    @property
    def tab_shown(self) -> str:
        """Title of the tab in front, without its count."""
        tabs = self.window.bottom_dock.tabs
        return tabs.tabText(tabs.currentIndex()).split(" (")[0]

    def page(self, title: str) -> None:
        """Click a tab; first the layout that has it, where the present one does not."""
        dock = self.window.bottom_dock
        if title in ("Session", "Log"):
            self.click(self.window.status.session)
            dock.apart_tabs.setCurrentIndex(("Session", "Log").index(title))
            return
        if not dock.tabs.isTabVisible(dock.tabs.indexOf(dock.areas[title.lower()])):
            layout = next(spec.layout for spec in dock.specs if spec.title == title)
            QTest.mouseClick(self.window.rail.buttons[layout], LEFT)
        if title == "Learn":  # stands beside the pages
            assert dock.areas["learn"].isVisible()
            return
        bar = self.window.bottom_dock.tabs.tabBar()
        at = next(number for number in range(bar.count()) if bar.tabText(number).split(" (")[0] == title)
        rect = bar.tabRect(at)
        if not bar.rect().contains(rect.center()):
            self.window.bottom_dock.tabs.setCurrentIndex(at)  # scrolled out of sight: by key
        else:
            QTest.mouseClick(bar, LEFT, pos=rect.center())
        self.heartbeat.tick()

    # --- the tree

    def focus_tree(self) -> None:
        """Focus the tree, as a click into it would."""
        self.window.activateWindow()  # the offscreen plugin leaves the focus on a closed menu
        self.until(self.window.isActiveWindow, "active")
        self.window.objects.tree.setFocus()

    def point(self, *targets: str) -> None:
        """Click the first row, Ctrl+click the others; expand their parents with the arrow key."""
        tree, model = self.window.objects.tree, self.window.objects.model
        self.focus_tree()
        for target in targets:
            for above in _above(target):
                if not tree.isExpanded(model.index_of(above)):
                    tree.setCurrentIndex(model.index_of(above))
                    QTest.keyClick(tree, Qt.Key.Key_Right)
        for number, target in enumerate(targets):
            index = model.index_of(target)
            assert index.isValid(), f"no row {target}"
            tree.scrollTo(index)
            QTest.mouseClick(tree.viewport(), LEFT, CTRL if number else PLAIN, tree.visualRect(index).center())
        self.heartbeat.tick()
        assert set(self.window.objects.selected_targets()) == set(targets)

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = PLAIN) -> None:
        """A key while the tree has the focus."""
        self.focus_tree()
        QTest.keyClick(self.window.objects.tree, key, modifier)
        self._went(1)

    # --- dialogs

    def dialog(self, kind: type[DLG]) -> DLG:
        """The open dialog of this kind."""

        def opened() -> list[DLG]:
            return [one for one in QApplication.topLevelWidgets() if isinstance(one, kind) and one.isVisible()]

        self.until(opened, f"a {kind.__name__} opens")
        return opened()[-1]

    def write(self, field: QLineEdit | QComboBox, text: str) -> None:
        """Replace the text of a field by typing."""
        line = field.lineEdit() if isinstance(field, QComboBox) else field
        assert line is not None
        self.click(line)
        line.selectAll()
        QTest.keyClicks(line, text)

    def pick(self, box: QComboBox, words: str) -> None:
        """Choose the item of a combo box that starts with this text, with the arrow keys."""
        box.setFocus()
        QTest.keyClick(box, Qt.Key.Key_Home)
        for _ in range(box.findText(words, Qt.MatchFlag.MatchStartsWith)):
            QTest.keyClick(box, Qt.Key.Key_Down)
        assert box.currentText().startswith(words), f"{box.currentText()} instead of {words}"

    def tick(self, check: QCheckBox) -> None:
        """Click a check box."""
        QTest.mouseClick(check, LEFT, pos=QPoint(8, check.height() // 2))
        assert check.isChecked()

    def take(self, buttons: Iterable[QAbstractButton], words: str) -> None:
        """Click the button that starts with this text."""
        found = {button.text(): button for button in buttons}
        button = next((one for text, one in found.items() if text.startswith(words)), None)
        assert button is not None, f"no button {words} among {list(found)}"
        assert button.isEnabled(), button.toolTip()
        self.click(button)


def _pick(menu: QMenu, words: Sequence[str]) -> None:
    """Click, level by level, the items that start with these texts."""
    for word in words:
        texts = [action.text() for action in menu.actions()]
        action = next((one for one in menu.actions() if _begins(one.text(), word)), None)
        assert action is not None, f"no line {word} among {texts}"
        assert action.isEnabled(), f"{word} cannot be chosen: {action.toolTip()}"
        where = menu.actionGeometry(action).center()
        QTest.mouseMove(menu, where)
        QTest.mouseClick(menu, LEFT, pos=where)
        menu = action.menu()
        assert menu is None or menu.isVisible(), f"{word} does not open"


def _begins(text: str, word: str) -> bool:
    """Whether a menu item has this text: `cuda:1 NVIDIA A10`, `mlp⇥Linear 20 → 256`."""
    return text == word or text.split("\t")[0].split("  ")[0] == word


def _above(target: str) -> list[str]:
    """All parents of a target, from the top."""
    name, colon, path = target.partition(":")
    parts = path.split(".")[:-1]
    return [name, *(f"{name}:{'.'.join(parts[: at + 1])}" for at in range(len(parts)))] if colon else []
