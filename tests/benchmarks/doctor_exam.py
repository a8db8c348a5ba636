"""How many of the bugs of an exam in `tests/doctor_models` the doctor finds at their line, whether each patch that it
offers repairs, and whether it is silent about the clean models. By the command line, as the author of such a model
would.

python tests/benchmarks/doctor_exam.py [NUMBER ...] [--exam exam_second] [--verbose]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMS = Path(__file__).parents[1] / "doctor_models"
WANTED = 36


def doctor(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The document about a model in this folder; what could not be run as its `error`."""
    target = f"{case['file']}:{case['factory']}"
    command = [sys.executable, "-m", "devexplorer.core.cli", "doctor", target, "--virtual", "2x Tesla T4", "--json"]
    command += ["--input", case["inputs"]] if case.get("inputs") else []
    command += ["--train"] if case.get("train") else []
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    document: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"problems": []}
    document["error"] = done.stderr.strip().splitlines()[-1:] if done.returncode == 2 else []
    return document


def written(exam: Path, folder: Path) -> None:
    """Write every model of an exam into a folder, with the lines that its answers name."""
    for section in re.split(r"(?m)^=== ", (exam / "models.txt").read_text())[1:]:
        name, _, code = section.partition("\n")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(code.rstrip("\n") + "\n")


def serious(document: dict[str, Any]) -> set[tuple[str, str, int]]:
    return {
        (problem["rule"], Path(problem["file"] or "").name, problem["line"] or 0)
        for problem in document["problems"]
        if problem.get("severity") != "note"
    }


def patches_that_fail(case: dict[str, Any], document: dict[str, Any], folder: Path) -> list[str]:
    """Of each patch that does not apply, or after which the same finding is there, or a new one."""
    wrong = []
    for problem in document["problems"]:
        if not problem.get("patch"):
            continue
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name) / "copy"
            shutil.copytree(folder, copy)
            file = copy / Path(problem["file"]).relative_to(folder)
            done = subprocess.run(
                ["patch", "--silent", str(file)], input=problem["patch"], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                wrong.append(f"{problem['rule']}: does not apply: {done.stdout.strip()}")
                continue
            after = doctor(case, copy)
            known = {(rule, name) for rule, name, _ in serious(document)}
            left = [one for one in serious(after) if one[0] == problem["rule"] and one[2] == problem["line"]]
            new = [one for one in serious(after) if one[:2] not in known]
            if left or new or (after["error"] and not document["error"] and not document.get("unchecked")):
                wrong.append(f"{problem['rule']} at line {problem['line']}: left {left}, new {new} {after['error']}")
    return wrong


def main() -> int:
    """Run; returns 1 where fewer are found than wanted, a patch fails, or a clean model is not silent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", help="of the models; all without")
    parser.add_argument("--exam", default="exam", help="folder of it (default: the first exam)")
    parser.add_argument("--verbose", action="store_true", help="show every finding")
    arguments = parser.parse_args()
    exam = EXAMS / arguments.exam
    cases = [
        case
        for case in json.loads((exam / "exam.json").read_text())
        if not arguments.numbers or case["file"][:2] in arguments.numbers
    ]
    found = bugs = bad = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve() / "exam"
            written(exam, folder)
            document = doctor(case, folder)
            here = serious(document)
            if case.get("clean"):
                silent = not here and not document["error"]
                bad += not silent
                verdict = "silent" if silent else f"NOT SILENT: {sorted(here)}"
            else:
                bugs += 1
                wanted = {(Path(file).name, line) for file, line in case["lines"]}
                # What only Macs refuse is told as a note.
                findings = document["problems"] + (document.get("notes", []) if case["kind"] == "mps" else [])
                told = {(Path(one["file"] or "").name, one["line"]) for one in findings}
                found += bool(told & wanted)
                verdict = "found" if told & wanted else f"MISSED ({case['kind']}, {sorted(wanted)}): {sorted(here)}"
            print(case["file"], verdict, *document["error"])
            failed = patches_that_fail(case, document, folder)
            bad += bool(failed)
            for line in failed:
                print(f"    PATCH {line}")
            if arguments.verbose:
                for problem in document["problems"]:
                    print("   ", *(problem[key] for key in ("rule", "file", "line", "message", "fix")))
        sys.stdout.flush()
    print(f"{found} of {bugs} found at their line; {bad} clean models or patches that are wrong")
    return int(bad > 0 or found < WANTED * bugs / 40)


if __name__ == "__main__":
    sys.exit(main())
