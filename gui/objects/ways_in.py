"""What an empty workspace offers: to build a sample model, to open one's own, to watch the machine. Main thread."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from devexplorer.core.session import State
from devexplorer.gui.widgets import (
    CENTRE,
    EDGE_PX,
    Role,
    Sign,
    can_add_virtual,
    hbox,
    label,
    push_button,
    show_text,
    vbox,
    why_not_live,
)

ICON_PX, WIDTH_PX, GUIDED_PX = 20, 400, 18


class Way(NamedTuple):
    """One of them."""

    name: str
    title: str
    words: str
    icon: str
    needs_engine: bool = True


WAYS = (
    Way("build", "Build a sample model", "An MLP, a ResNet, a transformer: to move and measure", "build"),
    Way("open", "Open my model…", "Your own Python: will it run on a GPU, and does it fit?", "open"),
    Way("watch", "Watch my machine", "Every device: load, memory, alerts", "monitor", needs_engine=False),
)
GUIDED = "guided"
"""The way of the small button."""


class WaysIn(QWidget):
    """One sentence, a button for each way in, and a small one that shows how."""

    chosen = Signal(str)
    """Name of the way."""

    def __init__(self) -> None:
        super().__init__()
        self.sentence = label(words="dim", wrap=True, align=CENTRE)
        self.buttons: dict[str, QPushButton] = {way.name: _WayButton(way) for way in WAYS}
        self.buttons[GUIDED] = push_button("Show me how", look="quiet", tip="A guided minute: build, move, measure")
        self.buttons[GUIDED].setFixedHeight(GUIDED_PX)
        for name, button in self.buttons.items():
            button.clicked.connect(partial(self.chosen.emit, name))
        rows = (part for way in WAYS for part in (None, self.buttons[way.name]))
        top = hbox((self.sentence, 1), self.buttons[GUIDED])
        column = vbox((None, 3), top, *rows, (None, 3), spacing=4)
        middle = QWidget()
        middle.setMaximumWidth(WIDTH_PX)
        middle.setLayout(column)
        hbox(None, (middle, 100), None, margins=(EDGE_PX, 4, EDGE_PX, 4), parent=self)

    def leave_out(self, name: str) -> None:
        """Do not offer this way."""
        self.buttons.pop(name).deleteLater()

    def say(self, text: str, state: State) -> None:
        """Why there is nothing here; the ways that can be gone now."""
        show_text(self.sentence, text)
        needing = {way.name for way in WAYS if way.needs_engine} | {GUIDED}
        for name, button in self.buttons.items():
            reason = why_not_live(state) if name in needing else None
            button.setVisible(state.recording is None)
            button.setEnabled(reason is None)
            button.setToolTip(reason or "")
        if len(state.usable_devices) < 2 and not can_add_virtual(state):
            self.buttons[GUIDED].hide()  # there is nothing to move to


class _WayButton(QPushButton):
    """An icon, a title, a few words."""

    def __init__(self, way: Way) -> None:
        super().__init__(autoDefault=True)  # Enter presses it
        self.setAccessibleName(way.title)
        self.setAccessibleDescription(way.words)
        icon = Sign(way.icon, "soft", ICON_PX)
        words = label(way.words, Role.LABEL, "dim")
        row = hbox(
            icon,
            (vbox(label(way.title, Role.STRONG), words, spacing=0), 1),
            spacing=EDGE_PX,
            margins=(EDGE_PX, 3, EDGE_PX, 4),
            parent=self,
        )
        for part in (icon, *self.findChildren(QLabel)):
            part.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._row = row

    def sizeHint(self) -> QSize:
        return self._row.sizeHint()

    def minimumSizeHint(self) -> QSize:
        return self._row.minimumSize()
