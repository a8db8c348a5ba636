"""Which files are being dragged. Main thread; apart from the field for a file, whose dialogs the window needs later."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData


def dropped_files(data: QMimeData) -> list[Path]:
    """The files of this machine that are dragged."""
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
