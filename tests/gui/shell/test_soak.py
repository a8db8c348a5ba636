"""A short part of the soak tests: the scripts work, and find nothing in half a minute."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MONKEY = Path(__file__).parents[2] / "soak" / "monkey.py"


def monkey(folder: Path, *more: str) -> str:
    """Random clicks, keys, texts, drags and files in a process of its own (tests/soak/monkey.py): what it prints."""
    command = [sys.executable, MONKEY, "--pace", "3", "--settle", "1", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The log of a monkey at the real window and engine, which has found nothing and left nothing."""
    folder = tmp_path_factory.mktemp("monkey")
    monkey(folder, "--seed", "7", "--actions", "400", "--log", "actions")
    return (folder / "actions").read_text().splitlines(keepends=True)


def test_a_monkey_at_the_real_window_and_engine_finds_nothing_and_leaves_nothing(lines: list[str]) -> None:
    assert len(lines) == 400
    assert "{folder}/files/" in "".join(lines)
    assert "devexplorer-monkey-" not in "".join(lines)


def test_a_log_is_done_again_in_a_folder_of_another_name_with_at_most_sixteen_devices(
    lines: list[str], tmp_path: Path
) -> None:
    """What was written down last is done last, and every dialog that is open by then is closed. The CPU and two cards
    are there at first; of twelve more pairs six have room."""
    pair = ['["trigger", "", {"id": "add_two"}]\n', '["wait", "", {"ms": 20}]\n']
    (tmp_path / "first").write_text("".join([*pair * 12, *lines[:126]]))
    said = monkey(tmp_path, "--replay", "first", "--log", "again")
    assert re.search(r"^150: settled, .* 15 devices$", said, re.MULTILINE), said
    assert (tmp_path / "again").read_text() == (tmp_path / "first").read_text()
