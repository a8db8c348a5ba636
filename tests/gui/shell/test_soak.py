"""A short part of the soak tests: the scripts work, and find nothing in half a minute."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parents[2] / "soak"


def test_a_monkey_at_the_real_window_and_engine_finds_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    """Random clicks, keys, texts, drags and files in a process of its own; see tests/soak/monkey.py."""
    command = [
        sys.executable,
        SOAK / "monkey.py",
        "--actions",
        "400",
        "--seed",
        "7",
        "--pace",
        "3",
        "--log",
        tmp_path / "actions",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((tmp_path / "actions").read_text().splitlines()) == 400
    assert "Traceback" not in done.stdout + done.stderr


def test_a_log_of_the_monkey_is_done_again_in_a_folder_of_another_name(tmp_path: Path) -> None:
    """What was written down last is done last, and every dialog that is open by then is closed."""
    command = [sys.executable, SOAK / "monkey.py", "--pace", "3"]
    for more in (("--seed", "7", "--actions", "150", "--log", "first"), ("--replay", "first", "--log", "again")):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    first = (tmp_path / "first").read_text()
    assert "{folder}/files/" in first
    assert "devexplorer-monkey-" not in first
    assert (tmp_path / "again").read_text() == first


def test_a_monkey_has_at_most_sixteen_devices(tmp_path: Path) -> None:
    """The CPU and two cards are there at first; of twelve more pairs six have room."""
    pair = '["trigger", "", {"id": "add_two"}]\n["wait", "", {"ms": 200}]\n'
    (tmp_path / "pairs").write_text(12 * pair)
    command = [sys.executable, SOAK / "monkey.py", "--replay", tmp_path / "pairs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^24: settled, .* 15 devices$", done.stdout, re.MULTILINE), done.stdout
