"""A part of torch's own operator database on a virtual GPU against the CPU; `tests/soak/op_db/run.py` does all of
it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "soak" / "op_db"
CONJUGATED = "values: Mismatched elements: 3 / 3 (100.0%)"


@pytest.fixture
def run(monkeypatch):
    """The script as a module; what it compares with runs in processes of its own, as torch's test package changes
    settings for good."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("run", "known"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("run")
    yield module
    for name in ("run", "known"):
        sys.modules.pop(name, None)


def test_a_part_of_the_database_agrees_with_the_cpu(tmp_path):
    answers = tmp_path / "answers.json"
    command = [sys.executable, str(FOLDER / "run.py"), "--part", "90", "--samples", "2", "--json", str(answers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(answers.read_text())
    compared = sum(sum(counts.values()) for _, answer in found for counts in answer["counts"].values())
    assert compared > 500
    assert {dtype for (_, dtype), _ in found} == {"float32", "float16", "complex64", "int64"}


def test_a_known_difference_comes_with_its_reason(run):
    words = "NotImplementedError: virtual GPUs hold dense tensors only, not torch.sparse_coo instead of a value"
    table = run.Table()
    table.add(
        ("to_sparse", "float32"), {"counts": {"gradient": {"different": 2}}, "differences": {"gradient": {words: 2}}}
    )
    assert not table.unexplained
    assert "Virtual GPUs hold dense tensors only; the refusal says so.\n  to_sparse (2)" in table.text()
    table.add(
        ("to_sparse", "float32"),
        {"counts": {"gradient": {"different": 1}}, "differences": {"gradient": {CONJUGATED: 1}}},
    )
    assert len(table.unexplained) == 1


def test_a_process_that_ends_or_hangs_costs_its_case_alone_and_is_named(run, tmp_path, monkeypatch):
    child = tmp_path / "child.py"
    child.write_text(
        "import json, os, sys, time\n"
        "print(json.dumps([['abort', 'float32'], ['hang', 'float32'], ['add', 'float32']]), flush=True)\n"
        "for line in sys.stdin:\n"
        "    name = json.loads(line)[0]\n"
        "    os.abort() if name == 'abort' else time.sleep(600) if name == 'hang' else None\n"
        "    print(json.dumps({'counts': {'forward': {'equal': 1}}, 'differences': {}}), flush=True)\n"
    )
    monkeypatch.setattr(run, "CHILD", child)
    monkeypatch.setattr(run, "LIMIT_SECONDS", 3.0)
    monkeypatch.setattr(sys, "argv", ["run.py", "--json", str(tmp_path / "answers.json")])
    assert run.main() == 1
    answers = {case[0]: found for case, found in json.loads((tmp_path / "answers.json").read_text())}
    assert answers["abort"] == "the process ended with -6"
    assert answers["hang"] == "no answer within 3 s"
    assert answers["add"]["counts"] == {"forward": {"equal": 1}}
