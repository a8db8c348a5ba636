"""A part of torch's own operator database on a virtual GPU against the CPU; `tests/soak/op_db/run.py` does all of
it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.device.memory import CachingAllocator, round_up

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
    command = [sys.executable, str(FOLDER / "run.py"), "--part", "180", "--samples", "1", "--json", str(answers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(answers.read_text())
    compared = sum(sum(counts.values()) for _, answer in found for counts in answer["counts"].values())
    assert compared > 200
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
    monkeypatch.setattr(run, "LIMIT_SECONDS", 1.0)
    monkeypatch.setattr(sys, "argv", ["run.py", "--json", str(tmp_path / "answers.json")])
    assert run.main() == 1
    answers = {case[0]: found for case, found in json.loads((tmp_path / "answers.json").read_text())}
    assert answers["abort"] == "the process ended with -6"
    assert answers["hang"] == "no answer within 1 s"
    assert answers["add"]["counts"] == {"forward": {"equal": 1}}


pytestmark = pytest.mark.usefixtures("virtual")

ROWS, WIDE, NARROW = 4096, 1024, 256


def made(*shape, dtype=torch.float32):
    return meta_empty(shape, dtype, "vgpu:0")


def beside(run):
    """The most that was allocated while `run` ran, without what is alive before and its result; nothing else stays."""
    before = torch.vgpu.memory_allocated()
    torch.vgpu.reset_peak_memory_stats()
    result = run()
    after = torch.vgpu.memory_allocated()
    most = torch.vgpu.max_memory_allocated()
    tensors = result if isinstance(result, tuple) else (result,)
    kept = sum(round_up(tensor.untyped_storage().nbytes()) for tensor in tensors if tensor is not None)
    assert after - before == kept
    return most - after


def test_an_expanded_matrix_is_copied_for_cublas():
    """The gradient of a sum is one number in every place: a stride of 0 is none that cuBLAS knows."""
    weight, expanded = made(WIDE, NARROW), made(1).expand(ROWS, WIDE)
    assert beside(lambda: expanded @ weight) == ROWS * WIDE * 4
    assert beside(lambda: expanded.t() @ made(ROWS, NARROW).detach()) >= ROWS * WIDE * 4
    batches, weights = made(1).expand(8, ROWS, WIDE), made(8, WIDE, NARROW)
    assert beside(lambda: torch.bmm(batches, weights)) == 8 * ROWS * WIDE * 4


@pytest.mark.parametrize(
    "matrix",
    [
        lambda: made(ROWS, WIDE),
        lambda: made(WIDE, ROWS).t(),
        lambda: made(ROWS, 2 * WIDE)[:, :WIDE],
        lambda: made(1, WIDE).expand(1, WIDE),
    ],
    ids=["rows", "columns", "part of wider rows", "one row"],
)
def test_what_cublas_can_read_is_not_copied(matrix):
    weight, operand = made(WIDE, NARROW), matrix()
    assert beside(lambda: operand @ weight) == 0


def test_a_batch_whose_matrices_are_apart_is_no_copy_but_every_other_column_is():
    heads = made(8, ROWS, 4, WIDE // 4).transpose(1, 2).flatten(0, 1)
    assert beside(lambda: torch.bmm(heads, made(32, WIDE // 4, 8).detach())) <= 32 * WIDE // 4 * 8 * 4
    scattered = made(ROWS, 2 * WIDE)[:, ::2]
    assert beside(lambda: scattered @ made(WIDE, 1).detach()) >= ROWS * WIDE * 4


def test_cudnn_gets_the_gradient_in_one_piece():
    x, weight = made(8, 3, 64, 64).requires_grad_(), made(16, 3, 3, 3).requires_grad_()
    out = functional.conv2d(x, weight, padding=1)
    gradient = made(1).expand(out.shape)
    assert beside(lambda: torch.autograd.grad(out, (x, weight), gradient)) == out.nbytes


def test_the_gradient_of_a_large_embedding_is_summed_in_order():
    """From 3,072 indices on they are sorted, and equal ones are summed in float32 first, ten at most in one sum."""
    for rows, count in ((50000, 3072), (50000, 4096), (100, 4096)):
        table = made(rows, 64, dtype=torch.float16).requires_grad_()
        segments = min(rows, count)
        sums = count // 10 + segments
        parts = [*[8 * count] * 3, *[8 * segments] * 2, 8 * sums, sums * 64 * 4]
        expected = sum(map(round_up, parts)) if count > 3072 else 0
        indices = torch.zeros(count, dtype=torch.int64, device="vgpu:0")
        out = functional.embedding(indices, table)
        gradient = made(count, 64, dtype=torch.float16)
        assert beside(lambda: torch.autograd.grad(out, (table,), gradient)) == expected  # noqa: B023


def test_the_gradient_of_a_softmax_is_multiplied_with_its_result_first():
    result, gradient = made(ROWS, WIDE).softmax(-1), made(ROWS, WIDE)
    backward, log_backward = torch.ops.aten._softmax_backward_data, torch.ops.aten._log_softmax_backward_data
    assert beside(lambda: backward(gradient, result, -1, torch.float32)) == ROWS * WIDE * 4
    assert beside(lambda: log_backward(gradient, result, -1, torch.float32)) == 0
    expanded = made(1).expand(ROWS, WIDE)
    assert beside(lambda: backward(expanded, result, -1, torch.float32)) == ROWS * WIDE * 4, "the product is whole"
    assert beside(lambda: log_backward(expanded, result, -1, torch.float32)) == ROWS * WIDE * 4


def test_without_room_for_it_the_operation_runs_out_of_memory(virtual):
    virtual.gpus[0].memory = CachingAllocator(24 << 20, 0)
    expanded, weight = made(1).expand(2 * ROWS, WIDE), made(WIDE, NARROW)
    with pytest.raises(torch.OutOfMemoryError):
        expanded @ weight
    small = made(1).expand(ROWS // 4, WIDE)
    assert (small @ weight).shape == (ROWS // 4, NARROW), "nothing was left behind"
