"""Makes Python environments for the tests of engines in other environments: `python tests/make_environments.py FOLDER`.

They are cheap: each is a virtual environment of this Python, with its own numpy in front of everything that is
installed here (a `.pth` file), torch above all; DevExplorer itself is not among that. Without an index it prints the
reason and makes none. Other torches and Pythons are gigabytes: docs/machines.md says with which it was tried.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ENVIRONMENTS = {"numpy-1.26": ("numpy==1.26.4",)}
"""Name -> what is installed in it."""
LIMIT_S = 60


def make(folder: Path, packages: tuple[str, ...]) -> None:
    """Raises `CalledProcessError` or `TimeoutExpired` where pip cannot get them."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    own = next((folder / "lib").glob("python*/site-packages"))
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--only-binary=:all:", *packages]
    subprocess.run(pip, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    (own / "everything_else.pth").write_text("\n".join(others) + "\n", encoding="utf-8")


def main(folder: Path) -> None:
    """Make them all, and say what became of each."""
    for name, packages in ENVIRONMENTS.items():
        try:
            make(folder / name, packages)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = str(getattr(error, "stderr", None) or error).strip()
            print(f"{name}: not made: {said.splitlines()[-1]}")
            (folder / name / "bin" / "python").unlink(missing_ok=True)
        else:
            print(f"{name}: made")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
