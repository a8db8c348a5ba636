"""A user without a mouse: keys go to what has the keyboard, and nothing is called or focused directly."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QLineEdit, QWidget

from fakes.window import Driver

Key = Qt.Key
CTRL, SHIFT, ALT, PLAIN = (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.AltModifier,
    Qt.KeyboardModifier.NoModifier,
)
MOST_TABS = 120


class Keyboard(Driver):
    """`pressed` counts the keys."""

    pressed = 0

    @property
    def focus(self) -> QWidget:
        """What the next key goes to."""
        return QApplication.activePopupWidget() or QApplication.focusWidget() or self.window

    def settle(self) -> None:
        """As a desktop does: the window below a closed dialog is the active one again."""
        for _ in range(3):
            QApplication.processEvents()
        dialog = QApplication.activeModalWidget()
        (dialog or self.window).activateWindow()
        self.until(lambda: (dialog or self.window).isActiveWindow(), "active")

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = PLAIN, times: int = 1) -> None:
        for _ in range(times):
            QTest.keyClick(self.focus, key, modifier)
            self.pressed += 1
            self.settle()

    def write(self, text: str) -> None:
        """Replace the text of the field with the keyboard."""
        assert isinstance(self.focus, QLineEdit | QComboBox), self.focus
        self.press(Key.Key_A, CTRL)
        for letter in text:
            QTest.keyClick(self.focus, letter)
        self.pressed += len(text)
        self.settle()

    def tab_to(self, name: str) -> QWidget:
        """Press Tab until what has this accessible name, or text, has the keyboard."""
        passed = []
        for _ in range(MOST_TABS):
            text = getattr(self.focus, "text", str)
            words = self.focus.accessibleName() or (text() if callable(text) else "")
            if words.startswith(name):
                return self.focus
            passed.append(words)
            self.press(Key.Key_Tab)
        raise AssertionError(f"Tab does not reach {name}: {passed}")

    def palette(self, words: str) -> None:
        """Ctrl+K, some letters, Return."""
        self.press(Key.Key_K, CTRL)
        self.write(words)
        self.press(Key.Key_Return)

    def idle(self) -> None:
        """All that was asked for is done."""
        self.until(lambda: not self.state.jobs, "done")
