"""The bar above the panels while a recording is shown: what it is, which moment, play, speed, and the way back. Main
thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QFrame,
    QPushButton,
    QSizePolicy,
    QSlider,
    QStyle,
    QStyleOptionSlider,
)

from devexplorer.core.base import elapsed_text, moment_text
from devexplorer.gui.widgets import (
    ElidedLabel,
    Role,
    Sign,
    current_theme,
    hbox,
    icon,
    label,
    theme_changed,
)

if TYPE_CHECKING:
    from devexplorer.core.recording.replay import ReplaySession, ReplayView

HEIGHT_PX = 40
TITLE_PX = 220
"""Of the title at least."""
STEP_MS = 100
"""One step of the slider, but for recordings of years."""
MOST_STEPS = 1_000_000_000
SPEEDS = (1, 10, 60)
"""Times as fast as it happened."""


class ReplayBar(QFrame):
    """Controls `replay`; `show_view` shows where it is. The owner connects `back`."""

    def __init__(self) -> None:
        super().__init__()
        self.replay: ReplaySession | None = None
        self.setObjectName("banner")
        self.setAccessibleName("Recording")
        self.setFixedHeight(HEIGHT_PX)
        self._view: ReplayView | None = None
        self._step_ms = STEP_MS
        self.title = ElidedLabel(Role.STRONG)
        self.title.setMinimumWidth(TITLE_PX)
        self.simulated = label(
            "simulated",
            Role.LABEL,
            "dim",
            tip="Devices in this recording are virtual GPUs: their numbers are simulated",
        )
        self._warning = Sign("warning", "warning")
        self.incomplete = label("incomplete", Role.LABEL, "warning")
        self.play = _Button("")
        self.play.setIconSize(QSize(16, 16))
        self.play.clicked.connect(self._play_clicked)
        self.now = label()
        self.slider = SeekSlider()
        self.slider.setAccessibleName("Moment of the recording")
        self.slider.setToolTip(
            "Arrow keys: a second; Page Up and Page Down: a twentieth of the recording; Home and End"
        )
        self.slider.valueChanged.connect(self._moved)
        self.end = label("", Role.LABEL, "dim")
        self.speeds: dict[int, QPushButton] = {}
        group = QButtonGroup(self)
        for speed in SPEEDS:
            button = _Button(f"{speed}×")
            button.setProperty("look", "quiet")
            button.setCheckable(True)
            button.setAccessibleName(f"{speed} times as fast")
            button.setToolTip("As fast as it happened" if speed == 1 else f"{speed} times as fast as it happened")
            button.clicked.connect(lambda _checked=False, speed=speed: self._set_speed(speed))
            group.addButton(button)
            self.speeds[speed] = button
        self.back = _Button("Back to live")
        self.back.setToolTip("Close the recording and show the machine again")
        self._lay_out()
        theme_changed.connect(self._show_playing)
        self._show_playing()
        self.hide()

    def _lay_out(self) -> None:
        speeds = hbox(*self.speeds.values(), spacing=0)
        hbox(
            (self.title, 2),
            self.simulated,
            self._warning,
            self.incomplete,
            self.play,
            self.now,
            (self.slider, 5),
            self.end,
            speeds,
            self.back,
            margins=(12, 0, 12, 0),
            parent=self,
        )

    def show_view(self, view: ReplayView) -> None:
        """Show this position; called every beat, changes only what differs."""
        before, self._view = self._view, view
        if before is not None and view == before:
            return
        self.slider.blockSignals(True)
        if before is None or view._replace(position_ms=0, now_unix_s=0.0) != before._replace(
            position_ms=0, now_unix_s=0.0
        ):
            self._show_recording(view)
        if not self.slider.isSliderDown():
            self.slider.setValue(view.position_ms // self._step_ms)
        self._show_moment(view)
        self.slider.blockSignals(False)

    def _show_recording(self, view: ReplayView) -> None:
        """Everything but the position."""
        self.simulated.setVisible(view.simulated)
        for widget in (self._warning, self.incomplete):
            widget.setVisible(bool(view.findings))
            widget.setToolTip("\n".join(view.findings))
        for control in (self.play, self.slider, *self.speeds.values()):
            control.setEnabled(view.opened)
        self._step_ms = max(STEP_MS, view.length_ms // MOST_STEPS)
        last = -(-view.length_ms // self._step_ms)
        self.slider.setRange(0, last)
        self.slider.setSingleStep(max(1000 // self._step_ms, 1))
        self.slider.setPageStep(max(last // 20, 1))
        length = elapsed_text(view.length_ms / 1000)
        self.end.setMinimumWidth(
            self.end.fontMetrics().horizontalAdvance(f"{length} of {length}")
        )  # the slider keeps its length
        for speed, button in self.speeds.items():
            button.setChecked(speed == view.speed)
        self._show_playing()

    @staticmethod
    def _title(view: ReplayView) -> str:
        if not view.opened:
            return f"Opening {view.file}, {view.progress:.0%}"
        read = "" if view.progress >= 1 else f", {view.progress:.0%} looked through"
        what = view.file if view.is_copy else f"Recording of {view.host}"
        return f"{what}, {moment_text(view.now_unix_s)[:10]}{read}"

    def _show_moment(self, view: ReplayView) -> None:
        """Times; the title has the day, which can change on the way."""
        texts = {self.now: "", self.end: ""}
        if view.opened:
            elapsed, length = elapsed_text(view.position_ms / 1000), elapsed_text(view.length_ms / 1000)
            texts = {self.now: moment_text(view.now_unix_s)[11:], self.end: f"{elapsed} of {length}"}
        for shown, text in texts.items():
            if shown.text() != text:
                shown.setText(text)
        self.title.set_full_text(self._title(view))

    def _show_playing(self) -> None:
        playing = self._view is not None and self._view.playing
        self.play.setIcon(icon("pause" if playing else "play", current_theme().text, current_theme().disabled))
        self.play.setAccessibleName("Pause" if playing else "Play")
        self.play.setToolTip("Stay at this moment" if playing else "Continue from this moment")

    def _play_clicked(self) -> None:
        if self.replay is not None:
            (self.replay.pause if self.replay.view.playing else self.replay.play)()

    def _set_speed(self, speed: int) -> None:
        if self.replay is not None:
            self.replay.set_speed(speed)

    def _moved(self, value: int) -> None:
        if self.replay is not None:
            self.replay.seek(value * self._step_ms)


class SeekSlider(QSlider):
    """A slider that goes to where it is clicked and can be dragged on from there."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.setMinimumWidth(160)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            option = QStyleOptionSlider()
            self.initStyleOption(option)
            handle = self.style().subControlRect(
                QStyle.ComplexControl.CC_Slider, option, QStyle.SubControl.SC_SliderHandle, self
            )
            if not handle.contains(event.position().toPoint()):
                room = self.width() - handle.width()
                index = round(event.position().x()) - handle.width() // 2
                self.setValue(QStyle.sliderValueFromPosition(self.minimum(), self.maximum(), index, room))
        super().mousePressEvent(event)


class _Button(QPushButton):
    """Space presses it while it has the focus, whatever else Space does in the window."""

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and event.key() == Qt.Key.Key_Space
        ):
            event.accept()
            return True
        return super().event(event)
