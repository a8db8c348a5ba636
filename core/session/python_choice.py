"""Which Python the engine of a window runs in, by the folder that the window is started in: as it was chosen there, or
in a folder above. Main thread.
"""

from __future__ import annotations

import os
from pathlib import Path

from devexplorer.core.session.settings import Settings

MOST = 100
"""Folders; the one that was chosen longest ago goes first."""


def remembered(settings: Settings, folder: Path) -> str | None:
    """The interpreter for a window that is started in this folder; None: the window's own."""
    for place in (folder, *folder.parents):
        if (python := settings.pythons.get(str(place))) is not None:
            return python or None
    return None


def choice(settings: Settings, folder: Path, python: str | None) -> dict[str, str]:
    """`Settings.pythons` with this choice; None: the window's own, also where a folder above has another."""
    kept = {place: chosen for place, chosen in settings.pythons.items() if place != str(folder)}
    kept[str(folder)] = python or ""
    return dict(list(kept.items())[-MOST:])


def current_folder() -> Path:
    """Where this window was started."""
    try:
        return Path.cwd()
    except OSError:  # it was removed since
        return Path("/")


def is_there(python: str) -> bool:
    """Whether it can be started, as far as one look tells."""
    return os.path.isdir(python) or os.access(python, os.X_OK)
