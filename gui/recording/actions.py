"""Actions that record and show recordings. Main thread only."""

from __future__ import annotations

from time import strftime

from devexplorer.gui.actions import FILE, ActionSpec, WindowContext
from devexplorer.gui.recording.replaying import replaying_of

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
                   replaying.why_no_recording, "Ctrl+R"),
        ActionSpec("stop_recording", "Stop recording", "End the recording and close its file", replaying.stop,
                   lambda: None if replaying.recorder is not None else "Nothing is being recorded."),
        ActionSpec("replay", "Open a recording…", "Show a recording in this window, with a time slider", replay,
                   menu=FILE, section=2),
    ]  # fmt: skip
