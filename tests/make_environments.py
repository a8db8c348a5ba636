"""Makes Python environments for the tests of engines in other environments: `python tests/make_environments.py FOLDER`.

They are cheap. `numpy-1.26` is a virtual environment of this Python with its own numpy in front of everything that is
installed here, torch above all (a `.pth` file). `bare` has torch, by links, and what torch needs: no pip, and none of
DevExplorer's packages, as an environment of uv; they have to be brought. DevExplorer itself is in neither. Without an
index the reason is printed. Other torches and Pythons are gigabytes: docs/machines.md says with which it was tried.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

LIMIT_S = 60


def numpy_126(folder: Path) -> None:
    """Raises `CalledProcessError` or `TimeoutExpired` where pip cannot get it."""
    own = _empty(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--only-binary=:all:"]
    subprocess.run([*pip, "numpy==1.26.4"], check=True, capture_output=True, text=True, timeout=LIMIT_S)
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (own / "everything_else.pth").write_text("\n".join(others) + "\n", encoding="utf-8")


def bare(folder: Path) -> None:
    """Links to what torch and numpy consist of here."""
    own = _empty(folder)
    for name in _with_requirements("torch", set()) | {"numpy"}:
        installed = metadata.distribution(name)
        tops = {file.parts[0] for file in installed.files or () if not file.parts[0].startswith(("..", "__"))}
        for top in tops:
            (own / top).symlink_to(Path(str(installed.locate_file(top))).resolve())


ENVIRONMENTS = {"numpy-1.26": numpy_126, "bare": bare}


def _empty(folder: Path) -> Path:
    venv.create(folder, with_pip=False, symlinks=True)
    return next((folder / "lib").glob("python*/site-packages"))


def _with_requirements(name: str, seen: set[str]) -> set[str]:
    """A package and all that it requires here, of what is installed."""
    if name not in seen:
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another system
            return seen
        seen.add(name)
        for line in required:
            if "extra ==" not in line:
                _with_requirements(re.split(r"[^\w.-]", line, maxsplit=1)[0].lower(), seen)
    return seen


def main(folder: Path) -> None:
    """Make them all, and say what became of each."""
    for name, make in ENVIRONMENTS.items():
        try:
            make(folder / name)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = str(getattr(error, "stderr", None) or error).strip()
            print(f"{name}: not made: {said.splitlines()[-1]}")
            (folder / name / "bin" / "python").unlink(missing_ok=True)
        else:
            print(f"{name}: made")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
