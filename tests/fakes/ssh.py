"""An `ssh` on PATH that is a shell script: it fails, asks and speaks as it is told, or runs the far command here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

RUNS_HERE = 'setsid /bin/sh -c "$far"'
"""The far command in a shell of this machine, which does not end when this ssh is ended: its input does."""
_SAY_MARKER = r"""
backwards() { echo "$far" | sed 's/.* \([0-9a-f]\{32\}\) [0-9]*$/\1/'; }
say_marker() { echo; backwards | sed '/\n/!G;s/\(.\)\(.*\n\)/&\2\1/;//D;s/.//'; }
"""
"""It is in the far command backwards."""


def fake_ssh(folder: Path, body: str = RUNS_HERE, **variables: str) -> dict[str, str]:
    """Write it into the folder; returns the variables of a process that finds it. `$far` is the far command, `ask TEXT`
    asks as ssh does and prints the answer, `say_marker` says what Python would when it is there."""
    program = folder / "bin" / "ssh"
    program.parent.mkdir(parents=True, exist_ok=True)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    program.write_text(
        "#!/bin/sh\n"
        f"printf '%s\\n' \"$@\" > '{folder}/arguments'\n"
        'for far; do :; done\nask() { "$SSH_ASKPASS" "$1"; }\n'
        f"{_SAY_MARKER}\n"
        f"{body}\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    path = [str(program.parent), os.path.dirname(sys.executable), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(path), "HOME": str(home), **variables}
