"""Traces: predictions without values equal a virtual GPU's counts with values, and a replay ends like a run on such a
card."""

import gc
import importlib
import sys

import pytest
import torch
from fakes.planning import ONE, T4, counted, subject, traced
from torch import nn

from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.models.copies import clone_model
from devexplorer.core.models.extras import make_optimizer
from devexplorer.core.planner import trace_cache
from devexplorer.core.planner.cards import by_bisection, fit_in, from_above
from devexplorer.core.planner.run import DeviceMap, StepConfig, run_step
from devexplorer.core.planner.subject import subject_of
from devexplorer.core.planner.trace import fit_scaling, step_estimate
from devexplorer.core.planner.trace_cache import TraceCache
from devexplorer.core.virtual.backend import install, meta_empty
from devexplorer.core.virtual.device.cost import PAGEABLE_BYTES_S
from devexplorer.core.virtual.device.memory import CachingAllocator

pytestmark = pytest.mark.usefixtures("virtual")

ZOO = {
    "mlp": ("", 8),
    "lenet": ("", 16),
    "resnet18": ("1x3x32x32", 4),
    "transformer": ("", 4),
    "lstm": ("1x6:int64", 3),
}
"""Model -> inputs (empty: its own) and batch: small, since they are run with values, too."""


@pytest.mark.parametrize(
    ("name", "config"),
    [
        *((name, StepConfig(train=True)) for name in ZOO),
        ("transformer", StepConfig(train=True, optimizer="momentum")),
        *((name, StepConfig()) for name in ("mlp", "lenet", "transformer")),
    ],
)
def test_the_peak_is_what_a_virtual_gpu_counts(name, config):
    inputs, batch = ZOO[name]
    trace = run_step(subject_of(name, "", inputs), config, batch, ONE)[0]
    assert trace.without_end.peak == counted(name, config, batch, inputs)


def blocks():
    """Six of one kind."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh()) for _ in range(6))
    )


def reserved_and_fits(batch, capacity):
    """Two steps with tensors without values on a virtual GPU of this capacity: what the allocator reserved, or None
    where it ran out."""
    machine = install()
    machine.reset()
    gpu = machine.add([T4])[0]
    gpu.memory = CachingAllocator(capacity, 0)
    try:
        model = clone_model(blocks(), lambda tensor: meta_empty(tensor.shape, tensor.dtype, "vgpu:0"))
        inputs = meta_empty((batch, 256), torch.float32, "vgpu:0")
        optimizer = make_optimizer("adamw", model.parameters(), lr=1e-6, foreach=True)
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            output = model(inputs)
            loss = output.sum()
            loss.backward()
            optimizer.step()
    except torch.OutOfMemoryError:
        return None
    return gpu.memory.reserved_bytes


def test_a_replay_ends_as_a_run_on_a_card_of_that_size():
    """On either side of the edge, and where segments have to be given back: the replay is the run."""
    trace = traced(blocks(), (1, 256), config=StepConfig(train=True), batch=20000)
    without_end = trace.without_end
    assert without_end.fits
    fits = []
    for capacity in range(trace.least - (4 << 20), without_end.reserved + (4 << 20), 6 << 20):
        gc.collect()
        ran = reserved_and_fits(20000, capacity)
        replay = trace.replay(capacity)
        assert replay.fits == (ran is not None), capacity
        assert not replay.fits or replay.reserved <= capacity, "a smaller card gives segments back"
        fits.append(replay.fits)
    assert (fits[0], fits[-1]) == (False, True)
    assert not trace.replay(trace.least - 1).fits
    assert trace.replay(without_end.reserved).fits
    assert trace.replay(without_end.reserved + 5, 5) == without_end


class Importing(nn.Linear):
    """Its forward imports something that holds the frames of those that imported it, in a circle."""

    def __init__(self):
        super().__init__(8, 8)

    def forward(self, x):
        x = super().forward(x)
        importlib.import_module("holding_frames")
        return x * 2


def test_what_is_imported_in_the_midst_of_a_run_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "holding_frames.py").write_text("import sys\ndef hold():\n    frame = sys._getframe()\nhold()\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        first, second = (traced(Importing(), (1, 8), config=StepConfig(), batch=4) for _ in range(2))
    finally:
        sys.modules.pop("holding_frames", None)
    assert first.events.tolist() == second.events.tolist()


def test_blocks_grow_evenly_with_the_batch():
    config, model = StepConfig(train=True), subject_of("lenet", "", "")
    runs = {batch: run_step(model, config, batch, ONE)[0] for batch in (2, 3, 5)}
    found = fit_scaling(runs)
    assert found is not None
    assert found.exact
    ran = run_step(model, config, 77, ONE)[0]
    assert found.at(77).least == ran.least
    assert found.at(77).without_end == ran.without_end
    other = run_step(model, StepConfig(train=True, optimizer="sgd"), 5, ONE)[0]
    assert fit_scaling({2: runs[2], 3: runs[3], 5: other}) is None


def test_no_law_where_a_block_grows_otherwise():
    class Pairs(nn.Module):
        def forward(self, x):
            return (x @ x.T).sum()

    runs = {batch: run_step(subject(Pairs(), (1, 64)), StepConfig(), batch, ONE)[0] for batch in (20, 30, 50)}
    assert fit_scaling(runs) is None


@pytest.mark.parametrize("largest", [1, 2, 7, 100, 4097, 65535, 65536])
def test_the_search_finds_the_edge(largest):
    def fits(batch):
        return batch <= largest

    at_least = largest == 65536
    assert from_above(fits, fits) == (largest, at_least)
    assert from_above(fits, lambda batch: batch <= 2 * largest) == (largest, at_least)
    assert by_bisection(fits, lambda: True) == (largest, at_least)


def test_a_search_without_time_says_what_it_knows():
    patience = iter([True, True, True])
    found = by_bisection(lambda batch: batch <= 1000, lambda: next(patience, False))
    assert (found.at_least, found.batch <= 1000) == (True, True)


def test_every_card_must_have_room():
    model = subject_of("mlp", "", "")
    trace = run_step(model, StepConfig(), 1, ONE)[0]
    assert fit_in([trace, trace], [(1 << 30, 0), (1 << 30, 0)])
    assert not fit_in([trace, trace], [(1 << 30, 0), (1 << 20, 0)])


def test_copies_count():
    class Halves(nn.Linear):
        """Gets what is on the host."""

        def forward(self, x):
            return super().forward(x) + torch.ones(4096, 256).to(x.device)

    copied = traced(Halves(256, 256), (1, 256), config=StepConfig(), batch=4096).copies
    assert [(one.nbytes, one.peer) for one in copied] == [(4096 * 256 * 4, None)]


@pytest.mark.parametrize(("dtype", "runs"), [(torch.float16, 2), (torch.float32, 1)])
def test_a_step_is_run_again_for_older_cards_where_attention_is_another_kernel_there(dtype, runs, monkeypatch):
    """In float16 a card without flash attention has another one, in float32 every card has the same."""
    ran = []

    def counting(*given, **options):
        ran.append(given)
        return run_step(*given, **options)

    monkeypatch.setattr(trace_cache, "run_step", counting)
    cache = TraceCache(subject_of("transformer", "", ""), patience_seconds=600.0)
    config, profiles = StepConfig(train=True, dtype=dtype), load_profiles()
    names = ("Tesla T4", "NVIDIA A10", "NVIDIA H200", "Tesla V100-SXM2-32GB")
    t4, a10, h200, v100 = (cache.traces(config, 2, DeviceMap((profiles[name],))) for name in names)
    assert len(ran) == runs
    assert v100 is t4
    assert h200 is a10
    assert (a10 is t4) is (runs == 1)
    assert t4[0].attention_by_card is a10[0].attention_by_card is (runs == 2)


def test_a_step_is_slower_on_a_slower_card_and_with_a_copy_of_its_inputs():
    trace = run_step(subject_of("lenet", "", ""), StepConfig(), 64, ONE)[0]
    h200 = load_profiles()["NVIDIA H200"]
    fast, plain, copied = (
        step_estimate([trace], [card], input_copy=copy).seconds
        for card, copy in ((h200, False), (T4, False), (T4, True))
    )
    assert fast < plain
    assert trace.input_bytes == 64 * 28 * 28 * 4
    assert copied - plain == pytest.approx(trace.input_bytes / PAGEABLE_BYTES_S)
