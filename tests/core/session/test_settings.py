"""Stored settings, and errors in storing them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import platformdirs
import pytest

from devexplorer.core.base.chosen_python import settings_file
from devexplorer.core.session.settings import Settings, SettingsFile


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path / "deep" / "folder")
    settings = Settings(theme="light", splitters={"rows": [1, 2, 3]}, span_s=30.0)
    assert file.save(settings) is None
    assert file.load() == settings
    assert os.listdir(file.path.parent) == ["window.json"], "nothing temporary is left"


@pytest.mark.parametrize("home", [None, "", "/somewhere/else"])
def test_they_are_where_the_system_wants_them(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME") if home is None else monkeypatch.setenv("XDG_CONFIG_HOME", home)
    folder = platformdirs.user_config_path("devexplorer", appauthor=False)
    assert settings_file() == SettingsFile().path == folder / "window.json"


def test_whoever_writes_last_writes_what_was_kept_last(tmp_path: Path) -> None:
    """Threads that were started earlier than `save`, and come later."""
    file = SettingsFile(tmp_path)
    file.keep(Settings(theme="light"))
    file.save(Settings(theme="dark"))
    assert file.write() is None
    assert file.load().theme == "dark"
    file.path.unlink()
    file.write()
    assert not file.path.exists(), "it was written"


def test_what_features_remember_and_what_is_not_known_is_kept_beside_the_rest(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path)
    file.path.write_text('{"theme": "light", "of_tomorrow": {"kept": [1]}, "of_features": {}}')
    settings = file.load()
    assert settings == Settings(theme="light", of_features={"of_tomorrow": {"kept": [1]}, "of_features": {}})
    assert file.damage is None
    assert file.save(settings) is None
    assert json.loads(file.path.read_bytes())["of_tomorrow"] == {"kept": [1]}
    assert file.load() == settings


def test_a_field_that_is_broken_costs_none_of_the_others(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path)
    file.path.write_text('{"theme": "light", "places": [3], "span_s": 0, "notifications": false}')
    before = file.path.read_bytes()
    assert file.load() == Settings(theme="light", notifications=False)
    assert file.damage is not None
    assert "places" in file.damage
    assert "span_s" in file.damage
    (aside,) = tmp_path.glob("window.damaged-*.json")
    assert aside.read_bytes() == before
    assert file.path.exists(), "the others are still read from it"


BROKEN = (
    b"",
    b"{",
    b"[]",
    b'{"theme": 3}',
    b"\xff\xfe",
    b'{"span_s": 0}',
    b'{"splitters": {"rows": [99999999999999]}}',
)


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    file = SettingsFile(tmp_path)
    file.path.write_bytes(content)
    assert file.load() == Settings()
    (aside,) = tmp_path.glob("window.damaged-*.json")
    assert aside.read_bytes() == content, "it is not lost"
    assert file.damage is not None
    assert str(aside) in file.damage
    assert file.save(Settings()) is None
    assert SettingsFile(tmp_path).load() == Settings()


def test_a_damaged_file_is_named_after_the_moment_and_said_once(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path, clock=lambda: time.mktime((2026, 11, 22, 11, 5, 12, 0, 0, -1)))
    file.path.write_bytes(b"{")
    file.load()
    assert [path.name for path in tmp_path.iterdir()] == ["window.damaged-20261122-110512.json"]
    assert file.load() == Settings()
    assert file.damage is None


def test_a_file_that_is_not_there_is_no_damage(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path / "never")
    assert file.load() == Settings()
    assert file.damage is None


def test_a_folder_in_the_place_of_the_file_is_put_aside_too(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path)
    file.path.mkdir()
    assert file.load() == Settings()
    assert file.damage is not None
    assert "could not be read" in file.damage
    assert file.save(Settings()) is None


def test_a_folder_that_is_a_file_is_said_in_one_sentence_and_nothing_is_raised(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    file = SettingsFile(tmp_path / "taken" / "devexplorer")
    complaint = file.save(Settings())
    assert complaint is not None
    assert str(file.path.parent) in complaint
    assert "\n" not in complaint
    assert file.load() == Settings()
    assert file.writable() is not None
