"""The Python that was chosen for a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from devexplorer.core.base.chosen_python import MOST, choice, current_folder, for_folder, is_there
from devexplorer.core.session.settings import Settings


def test_a_choice_counts_in_its_folder_and_below_until_another_is_made() -> None:
    settings = Settings()
    assert for_folder(settings.pythons, Path("/work/net/src")) is None
    settings = replace(settings, pythons=choice(settings.pythons, Path("/work"), "/opt/python"))
    settings = replace(settings, pythons=choice(settings.pythons, Path("/work/net"), "/work/net/.venv/bin/python"))
    assert for_folder(settings.pythons, Path("/work/net/src")) == "/work/net/.venv/bin/python"
    assert for_folder(settings.pythons, Path("/work/other")) == "/opt/python"
    assert for_folder(settings.pythons, Path("/workshop")) is None
    settings = replace(settings, pythons=choice(settings.pythons, Path("/work/net"), None))
    assert for_folder(settings.pythons, Path("/work/net/src")) is None, (
        "the window's own, although a folder above has another"
    )


def test_the_oldest_choice_goes_first() -> None:
    settings = Settings()
    for number in range(MOST + 1):
        settings = replace(settings, pythons=choice(settings.pythons, Path(f"/{number}"), "/p"))
    settings = replace(settings, pythons=choice(settings.pythons, Path("/1"), "/q"))
    settings = replace(settings, pythons=choice(settings.pythons, Path("/new"), "/p"))
    assert len(settings.pythons) == MOST
    assert "/2" not in settings.pythons
    assert settings.pythons["/1"] == "/q"


def test_a_folder_and_a_python_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert current_folder() == Path("/")
    assert not is_there(str(gone))
    assert is_there(str(tmp_path))
