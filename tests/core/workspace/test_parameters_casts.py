"""The error of a cast: change, overflow, underflow, NaN, integers out of range; without whole-tensor temporaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from places import Place
from torch import nn

from devexplorer.core.records import CastError, Move
from devexplorer.core.workspace import moves as cast_error
from devexplorer.core.workspace.moves import error_between, errors_between


def cast(place: Place, target: str, dtype: str, device: str = "cpu") -> CastError:
    report = place.do(Move(targets=(target,), device=device, dtype=dtype)).report
    assert report is not None
    assert report.losses is not None
    return report.losses


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(values=arrays.arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32)))
def test_against_numpy(dtype: torch.dtype, values: np.ndarray) -> None:
    old = torch.from_numpy(np.array(values))
    new = old.to(dtype)
    x, y = old.double().numpy(), new.double().numpy()
    found = error_between(old, new)
    both = np.isfinite(x) & np.isfinite(y)
    change = np.abs(y[both] - x[both])
    assert found.overflowed == int((np.isfinite(x) & np.isinf(y)).sum())
    assert found.underflowed == int(((x != 0) & (y == 0)).sum())
    assert found.nans == 0
    assert found.changed == int((change != 0).sum()) + found.overflowed
    assert math.isclose(found.largest, float(change.max(initial=0)), rel_tol=1e-6)
    sizes = np.abs(x[both])
    relative = change[sizes > 0] / sizes[sizes > 0]
    assert math.isclose(found.relative, float(relative.max(initial=0)), rel_tol=1e-5)


@given(st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_to_whole_numbers(values: list[float]) -> None:
    old = torch.tensor(values, dtype=torch.float64)
    inside = [value for value in values if -129 < value < 128]
    found = error_between(old, old.to(torch.int8))
    assert found.overflowed == len(values) - len(inside)
    assert found.changed == found.overflowed + sum(value != math.trunc(value) for value in inside)
    assert found.largest == pytest.approx(max((abs(value - math.trunc(value)) for value in inside), default=0.0))


def test_casts_that_cannot_lose_are_not_looked_at(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cast_error, "error_between", lambda old, new: pytest.fail("looked at"))
    place.workspace.add("x", torch.ones(3, dtype=torch.half))
    for dtype, device in (("float32", "cpu"), ("float64", "vgpu:0"), (None, "cpu")):
        report = place.do(Move(targets=("x",), device=device, dtype=dtype)).report
        assert report is not None
        assert report.losses is None


def test_other_layouts_and_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cast_error, "HOST_PIECE", 7)
    old = torch.linspace(0, 1, 60).view(5, 12).t()[::2]
    new = old.contiguous().half()
    change = (new.float() - old).abs()
    found = error_between(old, new)
    assert found.largest == pytest.approx(float(change.max()))
    assert found.changed == int((change != 0).sum())


@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float16), (torch.float64, torch.float32), (torch.int64, torch.uint8)]
)
@given(shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=2, max_size=6), seed=st.integers(0, 99))
def test_together_they_are_counted_as_alone(
    dtypes: tuple[torch.dtype, torch.dtype], shapes: list[list[int]], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    wide = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    sizes = [10.0 ** torch.randint(-9, 9, shape, generator=generator) for shape in shapes]
    olds = [(one * size).to(dtypes[0]) for one, size in zip(wide, sizes, strict=True)]
    olds = [old.t() if old.dim() == 2 else old for old in olds]
    news = [old.to(dtypes[1]) for old in olds]
    assert errors_between(olds, news) == [error_between(old, new) for old, new in zip(olds, news, strict=True)]


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_of_many_small_tensors_and_a_large_one_the_worst_is_named(
    place: Place, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cast_error, "HOST_PIECE", 40)
    monkeypatch.setattr(cast_error, "SMALL", 30)
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(10)), nn.Linear(9, 9))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(1.0)
        net[3].bias[:2] = 1e6
        net[7].weight[0, :3] = 1e6
        net[10].weight[0, :2] = 0.1
    place.workspace.add("net", net)
    found = cast(place, "net", "half", device)
    assert (found.elements, found.changed, found.overflowed) == (10 * 20 + 90, 7, 5)
    assert found.worst == "7.weight"


def test_a_count_that_fails_does_not_fail_the_cast(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(old: object, new: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(cast_error, "error_between", fails)
    place.workspace.add("x", torch.tensor([0.1]))
    outcome = place.do(Move(targets=("x",), device="cpu", dtype="half"))
    assert outcome.report is not None
    assert outcome.report.losses is None
    assert place.workspace.tensor_named("x").dtype == torch.half
