"""Makes an environment in which PyTorch's CUDA build sees cards: `python tests/standin/make.py FOLDER`. See
docs/standin.md.

FOLDER becomes a virtual environment with its own torch (a CUDA build, without the libraries of NVIDIA's that nothing
calls) in front of everything that is installed for the Python that runs this. `FOLDER/cards MODELS COMMAND…` runs a
command on cards:

    FOLDER/cards h200,t4 devexplorer devices
    FOLDER/cards t4,t4 python -m pytest tests/gpu

Exit codes: 0 made, 1 it could not be compiled, 3 pip has no such torch for this Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from standin import libraries

REPOSITORY = Path(__file__).parents[2]
TORCH = "torch==2.14.1"
"""Exactly: its C++ headers are compiled against, and what it takes from NVIDIA's libraries was looked through."""
HEADERS = ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88")
"""Of the CUDA that this torch is built with; 2 MB."""
DRIVER_CUDA = "13000"
"""The driver's CUDA: that of the runtime."""
NO_TORCH = 3

CARDS = """#!/bin/sh
# cards MODELS COMMAND…: a command on cards of these models (h200, a100, rtx4080, t4, gb10; with commas).
if [ $# -lt 2 ]; then echo "usage: cards MODELS COMMAND…" >&2; exit 2; fi
export FAKE_NVML_MODELS="$1" FAKE_NVML_CUDA="${{FAKE_NVML_CUDA:-{cuda}}}"
export LD_LIBRARY_PATH="{driver}" PATH="{bin}:$PATH"
export PYTHONPATH="{types}${{PYTHONPATH:+:$PYTHONPATH}}"
shift
if [ -n "$FAKE_CUDA_LEDGER" ]; then exec "$@"; fi
export FAKE_CUDA_LEDGER="$(mktemp)"
"$@"
status=$?
rm -f "$FAKE_CUDA_LEDGER"
exit $status
"""


def environment(folder: Path, models: str, ledger: Path, **more: str) -> Mapping[str, str]:
    """What a process on cards needs, for tests: the variables of `cards`, and others."""
    return {
        **os.environ,
        "FAKE_NVML_MODELS": models,
        "FAKE_NVML_CUDA": DRIVER_CUDA,
        "FAKE_CUDA_LEDGER": str(ledger),
        "LD_LIBRARY_PATH": str(folder / "driver"),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        **more,
    }


def install(folder: Path) -> Path:
    """A virtual environment with torch and the headers, and all else from here; returns its folder of packages. Where
    it has been made before, what is installed stays."""
    for site in (folder / "lib").glob("python*/site-packages"):
        if (site / "zz_everything_else.pth").exists():
            return site
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--only-binary=:all:", TORCH, *HEADERS], check=True, capture_output=True, text=True)
    here = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    lines = [
        f"import site; site.addsitedir({path!r})" for path in here
    ]  # addsitedir: so that editable packages are found, too
    (site / "zz_everything_else.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return site


def write_starters(folder: Path, site: Path) -> None:
    """The hook, `devexplorer`, and `cards`."""
    shutil.copy(Path(__file__).with_name("hook.py"), site / "fake_cuda_hook.py")
    (site / "fake_cuda.pth").write_text("import fake_cuda_hook\n", encoding="utf-8")
    command = folder / "bin" / "devexplorer"
    run = "import sys\nfrom devexplorer.gui.shell.main import main\nsys.exit(main())\n"
    command.write_text(f"#!{folder / 'bin' / 'python'}\n{run}", encoding="utf-8")
    cards = folder / "cards"
    text = CARDS.format(
        cuda=DRIVER_CUDA, driver=folder / "driver", bin=folder / "bin", types=REPOSITORY / ".ci" / "types"
    )
    cards.write_text(text, encoding="utf-8")
    for path in (command, cards):
        path.chmod(0o755)


def place_of(folder: Path, site: Path) -> libraries.Place:
    """Where each library belongs in an environment."""
    nvidia = site / "nvidia" / "cu13"
    return libraries.Place(
        site / "torch", nvidia / "lib", nvidia / "include", folder / "driver", site, folder / "scratch"
    )


def main(folder: Path) -> int:
    """Make it, and say what it took."""
    began = time.monotonic()
    try:
        site = install(folder)
    except subprocess.CalledProcessError as error:
        last = str(error.stderr).strip().splitlines()[-1:]
        print(f"no stand-in for CUDA: pip cannot get {TORCH} for Python {sys.version.split()[0]} ({' '.join(last)})")
        return NO_TORCH
    installed = time.monotonic()
    try:
        libraries.build(place_of(folder, site))
    except (libraries.BuildError, FileNotFoundError) as error:
        print(f"the stand-in for CUDA could not be compiled: {error}", file=sys.stderr)
        return 1
    write_starters(folder, site)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    took = f"installed in {installed - began:.0f} s, compiled in {time.monotonic() - installed:.0f} s"
    print(f"{folder}/cards MODELS COMMAND… runs a command on cards ({took}, {size / 1e6:,.0f} MB)")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/standin/make.py FOLDER")
    sys.exit(main(Path(sys.argv[1]).resolve()))
