"""The doctor on a running script: rules that need no run, and what the script was seen to do, each with its line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "checked_script.py"


def line(text: str) -> int:
    """Where the script has this."""
    return next(number for number, words in enumerate(SCRIPT.read_text().splitlines(), 1) if text in words)


def test_what_is_found_without_touching_the_model() -> None:
    command = [sys.executable, "-m", "devexplorer.core.cli", "run", "--virtual", "Tesla T4", str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["untouched"]
    assert [tuple(row) for row in found["rows"]] == [
        ("error", "unregistered-module", "blocks", line("self.blocks = ")),
        ("warning", "growing-graph", "", line("total += loss")),
        ("warning", "unregistered-tensor", "mask", 0),
        ("warning", "hidden-sync", "", line("loss.item()")),
        ("warning", "device-hop", "", line("self.mask.to(")),
        ("note", "device-hop", "", line("torch.ones(4, 8).cuda()")),
    ]
    assert found["unchecked"] == ["the forward, operation by operation", "a move"]
