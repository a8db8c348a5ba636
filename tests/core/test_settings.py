"""What is remembered between starts, and what happens when it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devexplorer.core.settings import Settings, SettingsFile


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path / "deep" / "folder")
    settings = Settings(theme="light", splitters={"rows": [1, 2, 3]}, span_s=30.0)
    assert file.save(settings) is None
    assert file.load() == settings
    assert os.listdir(file.path.parent) == ["window.json"], "nothing temporary is left"


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
