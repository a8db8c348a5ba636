"""The choice of a Python for the engine of windows that are started in a folder, as it is remembered
(`base.chosen_python`). Main thread."""

from __future__ import annotations

from pathlib import Path

from devexplorer.core.session.settings import Settings

MOST = 100
"""Folders; the one that was chosen longest ago goes first."""


def choice(settings: Settings, folder: Path, python: str | None) -> dict[str, str]:
    """`Settings.pythons` with this choice; None: the window's own, also where a folder above has another."""
    kept = {place: chosen for place, chosen in settings.pythons.items() if place != str(folder)}
    kept[str(folder)] = python or ""
    return dict(list(kept.items())[-MOST:])
