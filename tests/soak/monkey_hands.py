"""The monkey's actions on a window: choose one at random, log it, do it. Main thread.

The choice depends on the seed, the number of the action and the window's content, never on earlier choices. The log
names the widget and the position, so that actions can be repeated without choosing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from monkey_tree import shown, widget_at
from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import (
    QAction,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QInputMethodEvent,
    QWheelEvent,
)
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QDialog,
    QFileDialog,
    QLineEdit,
    QMenu,
    QMessageBox,
    QPlainTextEdit,
    QPushButton,
    QSplitterHandle,
    QTabBar,
    QTextEdit,
    QWidget,
)
from shiboken6 import isValid

from devexplorer.gui.actions import encode
from devexplorer.gui.shell.app import App

LEFT, RIGHT, MIDDLE = Qt.MouseButton.LeftButton, Qt.MouseButton.RightButton, Qt.MouseButton.MiddleButton
BUTTONS = {"left": LEFT, "right": RIGHT, "middle": MIDDLE}
MODIFIERS = {
    "": Qt.KeyboardModifier.NoModifier,
    "ctrl": Qt.KeyboardModifier.ControlModifier,
    "shift": Qt.KeyboardModifier.ShiftModifier,
    "ctrl+shift": Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier,
    "alt": Qt.KeyboardModifier.AltModifier,
}
KEYS = [
    *(
        ("Key_" + name, "")
        for name in ("Up", "Down", "Left", "Right", "Tab", "Return", "Escape", "Space", "Delete", "Backspace", "Home")
    ),
    *(
        ("Key_" + name, "")
        for name in ("End", "PageUp", "PageDown", "F1", "B", "F", "N", "E", "C", "V", "I", "L", "Slash", "Plus", "5")
    ),
    *(
        ("Key_" + name, "ctrl")
        for name in ("0", "1", "2", "3", "Z", "A", "C", "T", "R", "O", "S", "K", "V", "Tab", "Home", "End")
    ),
    *(("Key_" + name, "shift") for name in ("F", "B", "Tab", "Up", "Down", "Left", "Right", "F10")),
    *(("Key_" + name, "ctrl+shift") for name in ("Z", "O", "Left", "End")),
    ("Key_Down", "alt"),
    ("Key_Menu", ""),
]
WORDS = [
    "", "0", "1", "-1", "2", "3x4", "2x3x4", "16", "64", "128", "1e3", "nan", "1e400", "99999999999999999999", "0.5",
    "-", "1,2", "[1, 2]",
    "[[1, 2], [3, 4]]", "[[1, 2], [3]]", "cpu", "vgpu:0", "vgpu:1", "vgpu:9", "cuda:0", "float32", "float16", "int8",
    "bfloat16", "tf32",
    "complex64", "bool", "mlp", "lenet", "resnet18", "transformer", "weight", "bias", "Tesla T4", "2x Tesla T4", "A100",
    "9x nothing",
    "net.py:make", "net.py:broken", "net.py:none", "json:loads", "transformers:nothing", "net.safetensors", "array.npy",
    "out", "a/b/c",
    "x" * 300,
    "<b>bold</b>", "%s %d {0}", "'; --", "größer", "你好", "\N{GRINNING FACE}\N{ZERO WIDTH JOINER}",
    "\N{RIGHT-TO-LEFT OVERRIDE}abc",
    "move", "build", "undo", "theme", "words", "alert", "split", "adam", "freeze", "record", "check", "load", "values",
]  # fmt: skip
NEVER = {"quit", "close"}
"""Actions that close the window."""


class Action(NamedTuple):
    """One action; `at` names the widget."""

    do: str
    at: str
    how: dict[str, object]

    def line(self) -> str:
        """As it is logged."""
        return json.dumps([self.do, self.at, self.how], ensure_ascii=False)


def path_of(widget: QWidget) -> str:
    """A name by which the widget can be found again: the classes from its window down, each with its index among its
    kind."""
    parts: list[str] = []
    while True:
        parent = None if widget.isWindow() else widget.parentWidget()
        if parent is None:
            tops = [top for top in _tops() if type(top) is type(widget)]
            return "/".join(
                [f"{type(widget).__name__}:{tops.index(widget) if widget in tops else 0}", *reversed(parts)]
            )
        like = [child for child in parent.children() if type(child) is type(widget)]
        parts.append(f"{type(widget).__name__}:{like.index(widget)}")
        widget = parent


def find(path: str) -> QWidget | None:
    """The widget with this name, if it exists now."""
    first, *rest = path.split("/")
    name, _, at = first.partition(":")
    tops = [top for top in _tops() if type(top).__name__ == name]
    widget: QWidget | None = tops[min(int(at), len(tops) - 1)] if tops else None
    for part in rest:
        if widget is None:
            return None
        name, _, at = part.partition(":")
        like = [child for child in widget.children() if type(child).__name__ == name]
        found = like[int(at)] if int(at) < len(like) else None
        widget = found if isinstance(found, QWidget) else None
    return widget


def _tops() -> list[QWidget]:
    return sorted(
        (top for top in QApplication.topLevelWidgets() if top.isVisible()), key=lambda top: type(top).__name__
    )


class Hands:
    """`choose` and `do`; `files` can be opened, and files may be created in `folder`."""

    def __init__(self, app: App, folder: Path, files: list[Path]) -> None:
        self._app, self._folder, self._files = app, folder, files
        self._kinds: list[tuple[int, Callable[[random.Random, QWidget], Action | None]]] = [
            (24, self._point), (24, self._control), (14, self._key), (10, self._type), (6, self._drag), (4,
                                                                                                         self._wheel),
                                                                                                         (5,
                                                                                                         self._page),
            (7, self._trigger), (3, self._drop_objects), (1, self._drop_files), (1, self._resize), (1, self._wait),
        ]  # fmt: skip

    # --- choosing

    def choose(self, rng: random.Random) -> Action | None:
        """An action to do now; None if its target does not exist."""
        popup = QApplication.activePopupWidget()
        modal = QApplication.activeModalWidget()
        if isinstance(modal, QMessageBox):
            return self._button_of(rng, modal)
        if isinstance(popup, QMenu):
            return self._line_of(rng, popup)
        if isinstance(modal, QFileDialog) and popup is None:  # one behind a question or another dialog is out of reach
            return self._file(rng, modal)
        window: QWidget = popup or modal or self._app.window
        if modal is not None and rng.random() < 0.04:
            return Action("close", path_of(modal), {})
        if popup is None and modal is None:
            others = [top for top in _tops() if top is not window and isinstance(top, QDialog)]
            if others and rng.random() < 0.2:
                window = rng.choice(others)
                if rng.random() < 0.1:
                    return Action("close", path_of(window), {})
        [(_, kind)] = rng.choices(self._kinds, [weight for weight, _ in self._kinds])
        return kind(rng, window)

    def _button_of(self, rng: random.Random, box: QMessageBox) -> Action:
        button = rng.choice(box.buttons())
        return self._click(rng, button, plain=True)

    def _line_of(self, rng: random.Random, menu: QMenu) -> Action:
        lines = [
            number for number, action in enumerate(menu.actions()) if action.isEnabled() and not action.isSeparator()
        ]
        if not lines or rng.random() < 0.25:
            return Action("key", path_of(menu), {"key": "Key_Escape", "with": ""})
        number = rng.choice(lines)
        return Action("line", path_of(menu), {"number": number, "text": menu.actions()[number].text()})

    def _file(self, rng: random.Random, dialog: QFileDialog) -> Action:
        if rng.random() < 0.3:
            return Action("close", path_of(dialog), {})
        names = [
            "out",
            "out.devrec",
            "out.png",
            "out.csv",
            "out.safetensors",
            "out.pt",
            "out.pickle",
            "out.py",
            "nowhere/out",
            "größe",
        ]
        saving = dialog.acceptMode() == QFileDialog.AcceptMode.AcceptSave
        made = [path for path in (self._folder / "files").iterdir() if path.is_file()]
        path = self._folder / "files" / rng.choice(names) if saving else rng.choice(sorted(made) or self._files)
        if dialog.fileMode() == QFileDialog.FileMode.Directory:
            path = self._folder / "files"
        return Action("file", path_of(dialog), {"path": str(path)})

    def _point(self, rng: random.Random, window: QWidget) -> Action | None:
        where = QPoint(rng.randrange(max(window.width(), 1)), rng.randrange(max(window.height(), 1)))
        widget = widget_at(window, where)
        return self._click(rng, widget, widget.mapFrom(window, where))

    def _control(self, rng: random.Random, window: QWidget) -> Action | None:
        kinds = (
            QAbstractButton,
            QComboBox,
            QAbstractSpinBox,
            QAbstractSlider,
            QTabBar,
            QAbstractItemView,
            QSplitterHandle,
            QLineEdit,
        )
        kind = rng.choices(kinds, (10, 4, 2, 1, 2, 5, 1, 3))[0]
        found = [one for one in shown(window, kind) if one.isEnabled()]
        if not found:
            return None
        widget: QWidget = rng.choice(found)
        if isinstance(widget, QAbstractItemView):
            widget = widget.viewport()
        return self._click(rng, widget, plain=isinstance(widget, QAbstractButton))

    def _click(
        self, rng: random.Random, widget: QWidget, where: QPoint | None = None, *, plain: bool = False
    ) -> Action:
        if where is None:
            where = QPoint(rng.randrange(max(widget.width(), 1)), rng.randrange(max(widget.height(), 1)))
            if isinstance(widget, QAbstractButton):
                where = QPoint(min(8, widget.width() // 2), widget.height() // 2)
        if plain:
            how = {"button": "left", "with": "", "twice": False}
        else:
            how = {
                "button": rng.choices(("left", "right", "middle"), (80, 17, 3))[0],
                "with": rng.choices(("", "ctrl", "shift"), (80, 12, 8))[0],
                "twice": rng.random() < 0.12,
            }
        return Action("click", path_of(widget), {**how, "x": where.x(), "y": where.y(), "text": _text(widget)})

    def _key(self, rng: random.Random, window: QWidget) -> Action:
        focus = QApplication.focusWidget()
        widget = focus if focus is not None and focus.window() is window else window
        key, modifiers = rng.choice(KEYS)
        return Action("key", path_of(widget), {"key": key, "with": modifiers})

    def _type(self, rng: random.Random, window: QWidget) -> Action | None:
        found = [one for one in shown(window, QLineEdit) if one.isEnabled() and not one.isReadOnly()]
        if not found:
            return None
        text = rng.choice(WORDS) if rng.random() < 0.8 else str(self._folder / "files" / rng.choice(self._files).name)
        return Action("type", path_of(rng.choice(found)), {"text": text, "enter": rng.random() < 0.3})

    def _drag(self, rng: random.Random, window: QWidget) -> Action | None:
        handles = list(shown(window, QSplitterHandle))
        start = QPoint(rng.randrange(max(window.width(), 1)), rng.randrange(max(window.height(), 1)))
        widget = widget_at(window, start)
        if handles and rng.random() < 0.3:
            widget = rng.choice(handles)
        here = (
            widget.mapFrom(window, start)
            if widget.rect().contains(widget.mapFrom(window, start))
            else widget.rect().center()
        )
        if isinstance(widget.parentWidget(), QAbstractItemView):
            return None  # a drag from a list runs a nested loop, which only a real pointer ends
        dx, dy = rng.randint(-300, 300), rng.randint(-200, 200)
        return Action("drag", path_of(widget), {"x": here.x(), "y": here.y(), "dx": dx, "dy": dy})

    def _wheel(self, rng: random.Random, window: QWidget) -> Action:
        where = QPoint(rng.randrange(max(window.width(), 1)), rng.randrange(max(window.height(), 1)))
        widget = widget_at(window, where)
        here = widget.mapFrom(window, where)
        modifiers = rng.choices(("", "ctrl", "shift"), (8, 1, 1))[0]
        return Action(
            "wheel",
            path_of(widget),
            {"x": here.x(), "y": here.y(), "by": rng.choice((-240, -120, 120, 240)), "with": modifiers},
        )

    def _page(self, rng: random.Random, window: QWidget) -> Action | None:
        if window is not self._app.window:
            return None
        return Action("page", "", {"number": rng.randrange(len(self._app.window.bottom_dock.specs))})

    def _trigger(self, rng: random.Random, window: QWidget) -> Action | None:
        if window is not self._app.window:
            return None
        known = self._app.window.actions_by_id
        return Action("trigger", "", {"id": rng.choice(sorted(name for name in known if not _ends(known[name])))})

    def _drop_objects(self, rng: random.Random, window: QWidget) -> Action | None:
        state, items = self._app.state, self._app.window.devices.items
        if window is not self._app.window or not state.objects or not items:
            return None
        name = rng.choice(sorted(state.objects))
        rows = state.objects[name].rows
        row = rng.choice(rows) if rows and rng.random() < 0.5 else None
        target = f"{name}:{row.path}" if row is not None and row.path else name
        device = rng.choice(sorted(items))
        return Action("drop", path_of(items[device]), {"objects": [target], "leave": rng.random() < 0.2})

    def _drop_files(self, rng: random.Random, window: QWidget) -> Action:
        return Action("drop", path_of(window), {"files": [str(rng.choice(self._files))], "leave": rng.random() < 0.2})

    def _resize(self, rng: random.Random, window: QWidget) -> Action:
        size = rng.choice(((1440, 900), (1280, 800), (1000, 650), (1920, 1080), (1100, 700), (1600, 720)))
        return Action("resize", path_of(window), {"width": size[0], "height": size[1]})

    def _wait(self, rng: random.Random, _window: QWidget) -> Action:
        return Action("wait", "", {"ms": rng.choice((50, 200, 500))})

    # --- doing

    def do(self, action: Action) -> None:
        """Do it; ignore widgets that are gone, or out of reach because a repetition went differently."""
        widget = find(action.at) if action.at else self._app.window
        if widget is not None and (not action.at or (widget.isVisible() and _in_reach(widget))):
            how = {"with_" if key == "with" else key: value for key, value in action.how.items()}
            try:
                getattr(self, f"_do_{action.do}")(widget, **how)
            except RuntimeError:
                if isValid(widget):  # otherwise it disappeared under the pointer
                    raise

    def _do_click(self, widget: QWidget, x: int, y: int, button: str, with_: str, twice: bool, **_: object) -> None:
        if twice:
            QTest.mouseDClick(widget, BUTTONS[button], MODIFIERS[with_], QPoint(x, y))
        else:
            QTest.mouseMove(widget, QPoint(x, y))
            if not isValid(widget):
                return  # the widget disappeared when the pointer entered
            QTest.mouseClick(widget, BUTTONS[button], MODIFIERS[with_], QPoint(x, y))
            if button == "right" and isValid(widget):  # added to a click by the platform
                _context_menu(widget, QPoint(x, y))

    def _do_key(self, widget: QWidget, key: str, with_: str) -> None:
        QTest.keyClick(widget, getattr(Qt.Key, key), MODIFIERS[with_])

    def _do_type(self, widget: QLineEdit, text: str, enter: bool) -> None:
        widget.setFocus()
        widget.selectAll()
        if text.isascii():
            QTest.keyClicks(widget, text)
        else:  # QTest aborts at a character without a key
            event = QInputMethodEvent()
            event.setCommitString(text)
            QApplication.sendEvent(widget, event)
        if enter:
            QTest.keyClick(widget, Qt.Key.Key_Return)

    def _do_drag(self, widget: QWidget, x: int, y: int, dx: int, dy: int) -> None:
        QTest.mousePress(widget, LEFT, MODIFIERS[""], QPoint(x, y))
        for part in (0.2, 0.6, 1.0):
            QTest.mouseMove(widget, QPoint(x + round(part * dx), y + round(part * dy)))
        QTest.mouseRelease(widget, LEFT, MODIFIERS[""], QPoint(x + dx, y + dy))

    def _do_wheel(self, widget: QWidget, x: int, y: int, by: int, with_: str) -> None:
        where = QPointF(x, y)
        event = QWheelEvent(
            where, widget.mapToGlobal(where), QPoint(), QPoint(0, by), Qt.MouseButton.NoButton, MODIFIERS[with_],
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(widget, event)

    def _do_page(self, _window: QWidget, number: int) -> None:
        dock = self._app.window.bottom_dock
        dock.show_page(dock.specs[number].name)

    def _do_trigger(self, _window: QWidget, id: str) -> None:
        self._app.window.actions_by_id[id].trigger()

    def _do_line(self, widget: QWidget, number: int, text: str) -> None:
        assert isinstance(widget, QMenu)
        action = widget.actions()[number] if number < len(widget.actions()) else None
        if action is None or _ends(action):
            QTest.keyClick(widget, Qt.Key.Key_Escape)
            return
        where = widget.actionGeometry(action).center()
        QTest.mouseMove(widget, where)
        QTest.mouseClick(widget, LEFT, MODIFIERS[""], where)

    def _do_drop(
        self, widget: QWidget, leave: bool, objects: list[str] | None = None, files: list[str] | None = None
    ) -> None:
        data = QMimeData() if objects is None else encode(tuple(objects))
        if files is not None:
            data.setUrls([QUrl.fromLocalFile(path) for path in files])
        target: QWidget | None = widget
        while target is not None and not target.acceptDrops():
            target = target.parentWidget()
        if target is None:
            return
        where, actions = target.rect().center(), Qt.DropAction.CopyAction | Qt.DropAction.MoveAction
        enter = QDragEnterEvent(where, actions, data, LEFT, MODIFIERS[""])
        QApplication.sendEvent(target, enter)
        if not enter.isAccepted():
            return
        QApplication.sendEvent(target, QDragMoveEvent(where, actions, data, LEFT, MODIFIERS[""]))
        if leave:
            QApplication.sendEvent(target, QDragLeaveEvent())
        else:
            QApplication.sendEvent(
                target, QDropEvent(QPointF(where), actions, data, LEFT, MODIFIERS[""], QEvent.Type.Drop)
            )

    def _do_resize(self, widget: QWidget, width: int, height: int) -> None:
        widget.resize(width, height)

    def _do_wait(self, _window: QWidget, ms: int) -> None:
        """The time passes in the caller's loop."""

    def _do_close(self, widget: QWidget) -> None:
        widget.close()

    def _do_file(self, widget: QWidget, path: str) -> None:
        assert isinstance(widget, QFileDialog)
        widget.setDirectory(str(Path(path).parent))
        edit = widget.findChild(QLineEdit, "fileNameEdit")
        if edit is not None:
            edit.setText(path)
        widget.accept()


def _in_reach(widget: QWidget) -> bool:
    """Whether no dialog is in front of its window: Qt frees a file dialog twice if it is closed behind its own
    question."""
    window, modal = widget.window(), QApplication.activeModalWidget()
    return modal is None or window is modal or window.windowType() == Qt.WindowType.Popup


def _ends(action: QAction) -> bool:
    return action.objectName() in NEVER or action.text().rstrip("…").lower() in NEVER


def _text(widget: QWidget) -> str:
    """Its text, for readers of the log."""
    if isinstance(widget, QAbstractButton | QPushButton):
        return widget.text() or widget.accessibleName()
    return "" if isinstance(widget, QTextEdit | QPlainTextEdit) else widget.accessibleName()


def _context_menu(widget: QWidget, where: QPoint) -> None:
    from PySide6.QtGui import QContextMenuEvent

    if isinstance(widget, QLineEdit | QTextEdit | QPlainTextEdit) or isinstance(
        widget.parentWidget(), QTextEdit | QPlainTextEdit
    ):
        return  # Qt's own menus of text fields
    QApplication.sendEvent(widget, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, where, widget.mapToGlobal(where)))
