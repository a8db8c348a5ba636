"""Runs everything that wants a card on the stand-in for CUDA: `python tests/standin/run.py FOLDER [--quick]`.

FOLDER is made first where there is none (make.py). Then the stand-in's own tests, scripts that are observed, the `cuda`
scenarios, `tests/gpu`, `tests/gpu/everything.py`, the commands of README.md and the window with two and with eight
cards. `--quick` is what .ci/run takes of it. One line for each part, and the output of those that failed. Exit codes: 0
all went well, 1 not all, 3 pip has no such torch for this Python."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from standin.make import REPOSITORY, environment
from standin.make import main as make

PYTEST = ["-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
HANGS_S = 3600
"""A part that takes longer does not end; the longest takes five minutes on two idle cores."""
TWO, EIGHT = "h200,t4", ",".join(["t4"] * 8)
SPEED = "measures speed with shapes that take a CPU hours"
COPIES = "compares times of copies that are nothing where the card is host memory"
LEFT_OUT = {
    "tests/scenarios/test_all_reduce.py": "needs NCCL",
    "tests/scenarios/test_calibration.py": SPEED,
    "tests/gpu/test_cuda_calibration.py": SPEED,
    "tests/scenarios/test_behaviour_28_where_the_gpu_overtakes.py::test_with_copies_it_takes_longer": COPIES,
    "tests/gpu/test_cuda_matmul.py::test_every_mode_gives": SPEED,
}
"""Tests that the stand-in cannot show, and why."""


@dataclass(frozen=True)
class Part:
    """One process: its cards, and what its Python runs. `quick`: .ci/run has it, too."""

    title: str
    models: str
    arguments: list[str]
    quick: bool = False


def parts(report: Path) -> list[Part]:
    """All of it, the quickest first."""
    left_out = [f"--deselect={name}" for name in LEFT_OUT]
    headless = [*PYTEST, "-p", "no:pytest-qt"]
    window = [*PYTEST, "tests/gui/shell/test_on_cards.py"]
    commands = ["tests/project/test_documents.py", "-k", "every_other_command_runs and (README.md or command-line.md)"]
    scripts = "tests/standin/test_scripts.py"
    everything = ["tests/gpu/everything.py", "--small", "--out", str(report)]
    return [
        Part("the stand-in itself", TWO, [*headless, f"--ignore={scripts}", "tests/standin"], quick=True),
        Part("the window with two cards", TWO, window, quick=True),
        Part("scripts that are observed", TWO, [*headless, scripts]),
        Part("the scenarios", TWO, [*headless, "-m", "gpu", *left_out, "tests/scenarios"]),
        Part("the commands of README.md and docs/command-line.md", TWO, [*headless, *commands]),
        Part("tests/gpu", TWO, [*headless, *left_out, "tests/gpu"]),
        Part("the window with eight cards", EIGHT, window),
        Part("tests/gpu/everything.py", TWO, everything),
    ]


def run(part: Part, folder: Path, scratch: Path) -> bool:
    """Whether it went well; says so, with its output where it did not."""
    began = time.monotonic()
    more = {"QT_QPA_PLATFORM": "offscreen", "HF_HUB_OFFLINE": "1", "FAKE_CUDA_LOG": str(scratch / "log")}
    variables = environment(folder, part.models, scratch / "ledger", **more)
    command = [str(folder / "bin" / "python"), *part.arguments]
    try:
        done = subprocess.run(
            command,
            env=variables,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=HANGS_S,
            check=False,
        )
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        code, output = -1, f"not done within {HANGS_S} s\n{_text(late.stdout)}"
    last = output.strip().splitlines()[-1:]
    print(
        f"{part.title}: {'ok' if code == 0 else 'FAILED'}, {time.monotonic() - began:.0f} s: {' '.join(last)}",
        flush=True,
    )
    if code != 0:
        print("".join(f"    | {line}\n" for line in output.strip().splitlines()[-80:]), flush=True)
    return code == 0


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def main(folder: Path, quick: bool) -> int:
    """Make the environment where there is none, and run the parts."""
    if not (folder / "cards").exists() and (code := make(folder)) != 0:
        return code
    for name, reason in ({} if quick else LEFT_OUT).items():
        print(f"left out: {name}, which {reason}")
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [part for part in parts(folder / "report") if part.quick or not quick]
        failed = [part.title for part in chosen if not run(part, folder, Path(scratch))]
        log = Path(scratch, "log")
        for line in sorted({line.split(" ", 1)[1] for line in log.read_text().splitlines()} if log.exists() else ()):
            print(f"asked for: {line}")
    return int(bool(failed))


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--quick"]
    if len(arguments) != 1:
        sys.exit("usage: python tests/standin/run.py FOLDER [--quick]")
    sys.exit(main(Path(arguments[0]).resolve(), "--quick" in sys.argv))
