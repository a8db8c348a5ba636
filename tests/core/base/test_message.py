"""Text for people: a string at run time, which the type checker does not let code search."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from devexplorer.core.base import Message, errors
from devexplorer.core.records import Unchecked

REFUSED = (
    '"CUDA" in message',
    'message.startswith("It")',
    'message == "It stays."',
    "message.partition(' ')",
    "len(message)",
    "re.search('stays', message)",
)
ALLOWED = ('f"{message} More."', "str(message)", 'message + " More."', "bool(message)", 'message == Message("It")')


def test_records_hold_plain_text() -> None:
    unchecked = Unchecked(what="the forward", reason=Message("It stays."))
    assert msgspec.json.decode(msgspec.json.encode(unchecked), type=Unchecked) == unchecked
    assert msgspec.to_builtins(unchecked)["reason"] == "It stays."


def test_the_type_checker_finds_code_that_reads_a_message(tmp_path: Path) -> None:
    """The file of the type is checked with it; what else is in its package is not."""
    pytest.importorskip("mypy")
    head = ["import re", "from errors import Message", 'message = Message("It stays.")']
    file = tmp_path / "reading.py"
    file.write_text("\n".join([*head, *REFUSED, *ALLOWED]) + "\n")
    shutil.copy(errors.__file__, tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", file.name]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    lines = {int(line.split(":")[1]) for line in found.splitlines() if ": error:" in line}
    assert lines == {len(head) + 1 + index for index in range(len(REFUSED))}, found
