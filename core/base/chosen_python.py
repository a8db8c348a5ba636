"""Which Python was chosen in the window, for a folder and for another machine, as its settings have it: the commands go
by it, too, and have no window. Any thread.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec

FILE = "window.json"
"""In the user's configuration folder."""


class KnownMachine(msgspec.Struct, frozen=True):
    """A machine that was connected; it is connected again only when the user says so."""

    host: str
    """As ssh takes it."""
    python: str = ""
    """The interpreter of the engine there; empty: was not chosen."""


class Chosen(msgspec.Struct, frozen=True):
    """The fields of the window's settings that say so, under the same names."""

    pythons: dict[str, str] = {}
    """By the folder that a window is started in; empty: DevExplorer's own."""
    machines: tuple[KnownMachine, ...] = ()

    def for_machine(self, host: str) -> str | None:
        """The interpreter there; None: none was chosen."""
        return next((one.python for one in self.machines if one.host == host), None) or None


def settings_file() -> Path:
    """Where the window keeps its settings."""
    if platform.system() == "Linux":  # as platformdirs has it, whose import would take every command 6 ms
        home = os.environ.get("XDG_CONFIG_HOME", "").strip() or os.path.expanduser("~/.config")
        return Path(home, "devexplorer", FILE)
    import platformdirs

    return Path(platformdirs.user_config_dir("devexplorer", appauthor=False)) / FILE


def chosen() -> Chosen:
    """What was chosen; nothing where the settings cannot be read, which the window says."""
    try:
        return msgspec.json.decode(settings_file().read_bytes(), type=Chosen)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Chosen()


MOST = 100
"""Folders that are remembered; the one that was chosen longest ago goes first."""


def choice(pythons: Mapping[str, str], folder: Path, python: str | None) -> dict[str, str]:
    """`Settings.pythons` with this choice; None: the window's own, also where a folder above has another."""
    kept = {place: chosen for place, chosen in pythons.items() if place != str(folder)}
    kept[str(folder)] = python or ""
    return dict(list(kept.items())[-MOST:])


def for_folder(pythons: Mapping[str, str], folder: Path) -> str | None:
    """The interpreter that was chosen for this folder, or the nearest above; None: DevExplorer's own."""
    for place in (folder, *folder.parents):
        if (python := pythons.get(str(place))) is not None:
            return python or None
    return None


def current_folder() -> Path:
    """Where this process was started."""
    try:
        return Path.cwd()
    except OSError:  # it was removed since
        return Path("/")


def is_there(python: str) -> bool:
    """Whether it can be started, as far as one look tells."""
    return os.path.isdir(python) or os.access(python, os.X_OK)
