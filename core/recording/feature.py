"""Recording a session to a file, and showing what was recorded. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

MAGIC = b"\x89DEVREC\r\n"
"""How a recording begins: not text, and broken by whatever changes line ends, as PNG's is."""

FEATURE = Feature(
    needs=("watch",),
    listener="core.recording.recorder:RecordingTee",
    actions="gui.recording.actions:actions",
    marks=((MAGIC, "recording"),),
    opens=(("recording", "gui.recording.actions:open_recording"),),
)
