"""Records what is shown, and shows recordings in its place; the actions for both. Main thread only.

A recording that cannot be opened never takes the place of anything for long.
"""

from __future__ import annotations

import time
from pathlib import Path
from time import strftime
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject

from devexplorer.core.base import BadInput, bytes_text, elapsed_text
from devexplorer.core.session import Change, Machine, Settings
from devexplorer.gui.actions import FILE, ActionSpec, WindowContext
from devexplorer.gui.plots.time_axis import SPANS_S
from devexplorer.gui.widgets import Role, font, push_button, set_look

if TYPE_CHECKING:
    from devexplorer.core.recording.replay import ReplaySession
    from devexplorer.gui.forms.far_side import CopiedFile
    from devexplorer.gui.recording.replay_bar import ReplayBar


RECORDED = "recorded"
"""What the line in the status bar is about that offers a recording."""
CLOSE_S = 0.5
"""For the thread of a recording to end."""


def replaying_of(context: WindowContext) -> Replaying:
    """That of this window."""
    return context.findChild(Replaying) or Replaying(context)


def open_recording(context: WindowContext, file: Path | CopiedFile | str, _sent_from: object = None) -> None:
    """Show a recording in this window."""
    replaying_of(context).open(Path(file) if isinstance(file, str) else file)


class Replaying(QObject):
    """`open` a recording, `record` the machine shown."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self.replay: ReplaySession | None = None
        self._ended: list[ReplaySession] = []
        self._copy: CopiedFile | None = None
        """What is replayed, when it is a copy of another machine's file."""
        self._offered: tuple[Machine, Path] | None = None
        """The recording that was offered last, and where it is."""
        self._fits = False
        """Whether the plots show as much time as the recording shown has."""
        self._bar: ReplayBar | None = None
        self.button = push_button(clicked=self.stop, look="quiet", name="Stop recording")
        self.button.setFont(font(Role.LABEL))
        set_look(self.button, "error")  # with text beside it: never colour alone
        self.button.hide()
        context.add_status(self.button)
        context.beaten.connect(self.follow)
        context.texts_due.connect(self._refresh_button)
        context.settings_changed.connect(self._follow_settings)
        context.banner.action_chosen.connect(self._open_offered)
        context.closed.connect(self._close)

    @property
    def bar(self) -> ReplayBar:
        """Made when the first recording is opened."""
        if self._bar is None:
            from devexplorer.gui.recording.replay_bar import ReplayBar

            self._bar = ReplayBar()
            self._bar.back.clicked.connect(self._context.shown.back)
            self._context.add_bar(self._bar)
        return self._bar

    def open(self, file: Path | CopiedFile) -> None:
        """Show a recording in place of what is shown; the bar says how far it is, and a line in the status bar why it
        cannot be. A copy is removed when it is closed."""
        from devexplorer.core.recording.replay import ReplaySession  # when the first one is opened

        if isinstance(file, Path):
            path, copy, known_as = file, None, ""
            self._context.file_used.emit(file.absolute(), True)
        else:
            path, copy, known_as = file.path, file, file.name
        self._fits = False
        replay = ReplaySession(path, self._context.settings, known_as=known_as)
        replay.start()
        self._context.shown.show_instead(replay, f"opening {known_as or path.name}", self._end)
        self.replay, self._copy = replay, copy
        self.bar.replay = replay
        self.bar.show_view(replay.view)
        self.bar.show()
        self.bar.slider.setFocus()

    def follow(self) -> None:
        """After every beat: let the bar show where the replay is."""
        if self.replay is None:
            return
        view = self.replay.view
        if view.failed is not None:
            self._context.shown.back()
            self._context.banner.say(f"{view.failed[:1].upper()}{view.failed[1:]}.", error=True)
            return
        if view.opened and not self._fits:
            self._fits = True
            span_s = next((span for span in SPANS_S if span * 1000 >= view.length_ms), SPANS_S[-1])
            self._context.axis.set_span(span_s)
        self.bar.show_view(view)

    def _end(self) -> None:
        """Does not wait for its thread; recordings whose thread has ended are released, with the hundreds of megabytes
        that they may hold."""
        assert self.replay is not None
        self.bar.replay = None
        self.bar.hide()
        self._ended = [replay for replay in (*self._ended, self.replay) if not replay.close(0.0)]
        self.replay = None
        if self._copy is not None:
            self._copy.remove()
            self._copy = None

    def _close(self) -> None:
        """The window goes down."""
        if self.replay is not None:
            self._end()
        for replay in self._ended:
            replay.close(CLOSE_S)

    def _follow_settings(self, settings: Settings) -> None:
        if self.replay is not None:
            self.replay.settings = settings

    # --- recording

    @property
    def recorder(self) -> Any:
        """What records now, a `Recorder` or a `FarRecording`; None: nothing does."""
        session = self._context.session
        return None if session is None else session.listener("recording").recording

    def _refresh_button(self) -> None:
        """How long it records, and how much."""
        if (recorder := self.recorder) is not None:
            size = "" if recorder.bytes_written is None else f"  {bytes_text(recorder.bytes_written)}"
            self.button.setText(f"■ Stop recording  {elapsed_text(time.time() - recorder.started_unix_s)}{size}")
            self.button.setToolTip(f"Everything is recorded to {recorder.path}")
        if self.button.isHidden() != (recorder is None):
            self.button.setVisible(recorder is not None)
            self._context.redraw(Change.ENGINE)

    def record(self, path: Path, *, overwrite: bool = True) -> None:
        """Record the machine shown from now on; a line in the status bar says why that cannot be."""
        session = self._context.machine.session
        if session is None:
            self._context.banner.say("This machine is not watched yet: go back to live first, then record.", error=True)
            return
        try:
            session.listener("recording").start_recording(path, overwrite=overwrite)
        except BadInput as error:
            self._context.banner.say(f"{str(error)[:1].upper()}{str(error)[1:]}.", error=True)

    def stop(self) -> None:
        """End the recording, and offer to open it."""
        if self._context.session is not None and (recorder := self.recorder) is not None:
            self._context.session.listener("recording").stop_recording()
            self.offer(recorder.path)

    def why_no_recording(self) -> str | None:
        """Reason why nothing can be recorded now."""
        if self._context.state.recording is not None:
            return "A recording is shown: go back to live first."
        return None if self.recorder is None else "A recording is being made already."

    def offer(self, path: Path) -> None:
        """Say where the recording is, and offer to open it."""
        machine = self._context.machine
        where = "" if machine.is_here else f" on {machine.name}"
        path = path if where else path.absolute()
        self._context.file_used.emit(path, False)
        self._offered = machine, path
        self._context.banner.say(f"Recorded to {path.name}{where}.", passing=True, about=RECORDED, action="Open")

    def _open_offered(self, about: str) -> None:
        if about == RECORDED and self._offered is not None:
            machine, path = self._offered
            self._context.banner.clear()
            if machine.is_here:
                self.open(path)
            elif machine is self._context.machine:
                self._context.far_files_chosen.emit([path])


RECORDINGS = "DevExplorer recordings"


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    replaying, far = replaying_of(context), context.far_files_chosen.emit

    def record() -> None:
        name = f"recording-{strftime('%Y%m%d-%H%M%S')}.devrec"
        context.save_file("Save the recording", name, {"devrec": RECORDINGS}, replaying.record)

    def replay() -> None:
        kinds = f"{RECORDINGS} (*.devrec);;All files (*)"
        context.choose_files("Open a recording", kinds, lambda paths: replaying.open(paths[0]), far=far)

    return [
        ActionSpec("record", "Record…", "Write every reading to a file that can be replayed", record,
                   replaying.why_no_recording, "Ctrl+R", asks=Change.ENGINE),
        ActionSpec("stop_recording", "Stop recording", "End the recording and close its file", replaying.stop,
                   lambda: None if replaying.recorder is not None else "Nothing is being recorded.",
                   asks=Change.ENGINE),
        ActionSpec("replay", "Open a recording…", "Show a recording in this window, with a time slider", replay,
                   menu=FILE, section=2),
    ]  # fmt: skip
