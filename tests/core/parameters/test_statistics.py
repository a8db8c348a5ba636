"""Statistics of values: correct for every dtype, layout and size, for unusual values, and without large temporaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from devexplorer.core.base import NO_PROGRESS, Cancelled, ProgressMonitor
from devexplorer.core.parameters import describing as statistics
from devexplorer.core.parameters.describing import TensorStatistics, figures
from devexplorer.core.workspace.parts import pieces, pieces_together

BINS = 10


def looked_at(tensor: Tensor, *, exact: bool = True) -> TensorStatistics:
    return figures(tensor, BINS, exact=exact, progress=NO_PROGRESS)


def agrees(tensor: Tensor, found: TensorStatistics) -> None:
    """Compare with numpy in long double."""
    values = tensor.detach().to(torch.float64).numpy().astype(np.longdouble).ravel()
    finite = values[np.isfinite(values)]
    moments = found.moments
    assert moments.count == len(finite)
    assert moments.nans == int(np.isnan(values).sum())
    assert moments.infinities == int(np.isinf(values).sum())
    assert moments.zeros == int((finite == 0).sum())
    if not len(finite):
        return
    size = float(np.abs(finite).max())
    assert moments.minimum == float(finite.min())
    assert moments.maximum == float(finite.max())
    assert math.isclose(moments.mean, float(finite.mean()), rel_tol=1e-6, abs_tol=1e-6 * size)
    scaled = finite / (size or 1)
    assert math.isclose(moments.deviation / (size or 1), float(scaled.std()), rel_tol=2e-5, abs_tol=1e-7)
    norm = float(np.sqrt((scaled * scaled).sum())) * size
    assert math.isclose(found.norm, norm, rel_tol=2e-5) or math.isinf(norm)
    assert sum(found.counts) == len(finite)
    assert len(found.counts) == BINS


ODD = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 65504.0, 1e-8, 3e38, 1e-40])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, max_side=12)


@given(
    arrays.arrays(np.float32, SHAPES, elements=st.floats(width=32) | ODD.map(lambda value: float(np.float32(value))))
)
def test_float32_with_anything_in_it(values: np.ndarray) -> None:
    tensor = torch.from_numpy(np.array(values))
    agrees(tensor, looked_at(tensor))


@given(
    arrays.arrays(
        np.float64,
        SHAPES,
        elements=st.floats(min_value=-1e150, max_value=1e150, allow_subnormal=False)
        | st.sampled_from([math.nan, math.inf, 0.0]),
    )
)
def test_float64(values: np.ndarray) -> None:
    tensor = torch.from_numpy(np.array(values))
    agrees(tensor, looked_at(tensor))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(
    arrays.arrays(
        np.float32, SHAPES, elements=st.floats(-60000, 60000, width=32) | st.sampled_from([math.nan, math.inf, -0.0])
    )
)
def test_half_precision(dtype: torch.dtype, values: np.ndarray) -> None:
    tensor = torch.from_numpy(np.array(values)).to(dtype)
    agrees(tensor, looked_at(tensor))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
@given(data=st.data())
def test_whole_numbers(dtype: type, data: st.DataObject) -> None:
    tensor = torch.from_numpy(np.array(data.draw(arrays.arrays(dtype, SHAPES))))
    agrees(tensor, looked_at(tensor))


@settings(max_examples=30)
@given(
    arrays.arrays(np.float32, (7, 12, 5), elements=st.floats(-10, 10, width=32)),
    st.permutations([0, 1, 2]),
    st.integers(1, 3),
)
def test_layouts(values: np.ndarray, order: list[int], step: int) -> None:
    tensor = torch.from_numpy(np.array(values)).permute(order)[:, ::step]
    agrees(tensor, looked_at(tensor))


@given(st.permutations([0, 1, 2]), st.integers(1, 50), st.integers(1, 2))
def test_pieces_hold_every_element_once(order: list[int], limit: int, step: int) -> None:
    tensor = torch.arange(6 * 5 * 4).view(6, 5, 4).permute(order)[::step]
    found = list(pieces(tensor, limit))
    assert all(len(piece) <= limit for piece in found)
    assert sorted(torch.cat(found).tolist()) == sorted(tensor.flatten().tolist())


@given(st.permutations([0, 1, 2]), st.integers(1, 50))
def test_pieces_of_two_tensors_belong_together(order: list[int], limit: int) -> None:
    first = torch.arange(6 * 5 * 4).view(6, 5, 4).permute(order)
    second = (first * 2).contiguous()
    for a, b in pieces_together((first, second), limit):
        assert torch.equal(2 * a, b)


def test_the_same_whether_in_one_piece_or_in_many(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(0)) + 3
    tensor[17], tensor[900] = math.nan, 0.0
    whole = looked_at(tensor)
    monkeypatch.setattr(statistics, "piece_elements", lambda values: 37)
    cut = looked_at(tensor)
    assert cut.counts == whole.counts
    assert math.isclose(cut.moments.deviation, whole.moments.deviation, rel_tol=1e-6)
    assert (cut.moments.zeros, cut.moments.nans) == (1, 1)


def test_a_small_spread_around_a_large_mean() -> None:
    """Here the difference of mean square and squared mean would be noise in float32."""
    tensor = 10_000 + torch.randn(300_000, generator=torch.Generator().manual_seed(1))
    found = looked_at(tensor).moments
    assert math.isclose(found.deviation, float(tensor.double().std(correction=0)), rel_tol=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e38, 1e-42])
def test_one_value_everywhere_has_no_spread(value: float) -> None:
    found = looked_at(torch.full((300_000,), value))
    assert found.moments.deviation == 0
    assert found.moments.mean == pytest.approx(float(torch.tensor(value)), rel=1e-12)
    assert sum(found.counts) == max(found.counts) == 300_000


def test_squares_that_overflow_or_vanish_in_their_own_dtype() -> None:
    for size in (1e30, 1e-30):
        tensor = torch.tensor([size, -size, size, -size])
        assert looked_at(tensor).moments.deviation == pytest.approx(size, rel=1e-6)
        assert looked_at(tensor).norm == pytest.approx(2 * size, rel=1e-6)
    tensor = torch.tensor([1e300, -1e300], dtype=torch.float64)
    assert looked_at(tensor).moments.deviation == pytest.approx(1e300)
    assert sum(looked_at(tensor).counts) == 2


class Sizes(TorchDispatchMode):
    """Notes the largest tensor that an operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))  # type: ignore[operator]
        if isinstance(result, Tensor) and not func._schema.returns[0].alias_info:  # type: ignore[attr-defined]
            self.largest = max(self.largest, result.numel())
        return result


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int16])
def test_no_temporary_is_as_large_as_the_tensor(exact: bool, dtype: torch.dtype) -> None:
    tensor = torch.zeros(5_000_000, dtype=dtype).view(1000, 5000).t()
    with Sizes() as sizes, pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "WHOLE_LIMIT", 1_000_000)
        figures(tensor, BINS, exact=exact, progress=NO_PROGRESS)
    assert 0 < sizes.largest <= 600_000


@pytest.fixture
def sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large begins early."""
    monkeypatch.setattr(statistics, "WHOLE_LIMIT", 100_000)
    monkeypatch.setattr(statistics, "SAMPLE_ELEMENTS", 1 << 14)
    monkeypatch.setattr(statistics, "SUM_ELEMENTS", 1 << 17)


@pytest.mark.usefixtures("sampling")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32])
def test_a_large_tensor_is_sampled_but_for_mean_nan_and_inf(dtype: torch.dtype) -> None:
    drawn = torch.randn(600_000, generator=torch.Generator().manual_seed(2)) * 100
    tensor = drawn.to(dtype)
    if dtype.is_floating_point:
        tensor[12_345] = math.nan
        tensor[500_001], tensor[500_002] = math.inf, -math.inf
    found = looked_at(tensor, exact=False)
    exact = looked_at(tensor)
    assert exact.sampled == 0
    assert 1 << 13 < found.sampled < 1 << 16
    assert found.moments.mean == pytest.approx(exact.moments.mean, rel=1e-5, abs=1e-6)
    assert (found.moments.nans, found.moments.infinities) == (exact.moments.nans, exact.moments.infinities)
    assert found.moments.count == exact.moments.count
    assert found.moments.deviation == pytest.approx(exact.moments.deviation, rel=0.05)
    assert found.norm == pytest.approx(exact.norm, rel=0.05)
    assert found.moments.maximum <= exact.moments.maximum
    assert sum(found.counts) in range(found.sampled - 3, found.sampled + 1)


@pytest.mark.usefixtures("sampling")
def test_zeros_of_a_large_tensor_are_estimated_for_all_of_it() -> None:
    tensor = (torch.rand(400_000, generator=torch.Generator().manual_seed(3)) < 0.25).to(torch.float32)
    assert looked_at(tensor, exact=False).moments.zeros == pytest.approx(300_000, rel=0.02)


@pytest.mark.usefixtures("sampling")
def test_a_small_tensor_is_never_sampled() -> None:
    assert looked_at(torch.ones(50_000), exact=False).sampled == 0


@pytest.mark.parametrize("exact", [True, False])
def test_it_can_be_cancelled_between_two_pieces(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    monkeypatch.setattr(statistics, "WHOLE_LIMIT", 10)
    monkeypatch.setattr(statistics, "SUM_ELEMENTS", 100)
    monkeypatch.setattr(statistics, "piece_elements", lambda values: 100)
    asked = iter([False, False, True])
    with pytest.raises(Cancelled):
        figures(torch.ones(1000), BINS, exact=exact, progress=ProgressMonitor(cancelled=lambda: next(asked)))
