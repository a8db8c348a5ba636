"""What is remembered between starts, and what happens when it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devexplorer.core.settings import Settings, SettingsFile
from devexplorer.core.telemetry.alert_rules import DEFAULT_RULES, Rule


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path / "deep" / "folder")
    settings = Settings(theme="light", splitters={"rows": [1, 2, 3]}, span_s=30.0)
    assert file.save(settings) is None
    assert file.load() == settings
    assert os.listdir(file.path.parent) == ["window.json"], "nothing temporary is left"


def test_alert_rules_and_the_choice_of_notifications_are_kept(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path)
    settings = Settings(
        alert_rules=(*DEFAULT_RULES, Rule(metric="power_w", enabled=False, raise_at=300, clear_at=280)), notifications=False
    )
    assert file.save(settings) is None
    assert file.load() == settings


@pytest.mark.parametrize(
    "rules", ['"x"', "[3]", '[{"metric": 3}]', '[{"metric": "power_w", "seconds": -1}]', '[{"metric": "power_w", "raise_at": 1e300}]']
)
def test_a_field_that_is_broken_costs_none_of_the_others(tmp_path: Path, rules: str) -> None:
    file = SettingsFile(tmp_path)
    file.path.write_text(f'{{"theme": "light", "alert_rules": {rules}, "span_s": 0, "from_the_future": 1, "notifications": false}}')
    assert file.load() == Settings(theme="light", notifications=False)


BROKEN = (b"", b"{", b"[]", b'{"theme": 3}', b"\xff\xfe", b'{"span_s": 0}', b'{"splitters": {"rows": [99999999999999]}}')


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    file = SettingsFile(tmp_path)
    file.path.write_bytes(content)
    assert file.load() == Settings()


def test_a_folder_that_is_a_file_is_said_in_one_sentence_and_nothing_is_raised(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    file = SettingsFile(tmp_path / "taken" / "devexplorer")
    complaint = file.save(Settings())
    assert complaint is not None
    assert str(file.path.parent) in complaint
    assert "\n" not in complaint
    assert file.load() == Settings()
    assert file.writable() is not None
