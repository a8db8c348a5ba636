"""The window's state after each event."""

from __future__ import annotations

import math

import msgspec
import pytest

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import (
    AllocatorSample,
    Answer,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    DeviceInfo,
    DeviceSample,
    EngineLost,
    EngineReady,
    JobEnded,
    JobStarted,
    Log,
    MatmulSpec,
    Moved,
    MoveReport,
    ObjectChanged,
    ObjectRemoved,
    ObjectSnapshot,
    ProcessUse,
    Rebuilt,
    UndoState,
)
from devexplorer.core.session.state import LEFT_S, Change, State
from devexplorer.core.telemetry.memory_breakdown import MemoryParts

READY = EngineReady(
    pid=1, python_version="3.11", torch_version="2.13", cuda_version=None, cuda_available=False, cuda_device_count=0,
    cuda_visible_devices=None, threads=2, virtual_unavailable=None, recipes={},
)  # fmt: skip
CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", memory_total_bytes=1000)
CARD = DeviceInfo(id="nvml:0", kind="nvml", name="A10", uuid="GPU-1", usable=False, reason="not asked yet")
SPEC = MatmulSpec(device="cpu", m=1, n=1, k=1)


@pytest.fixture
def state() -> State:
    state = State()
    state.set_catalog(Catalog((CPU, CARD)))
    return state


def snapshot(name: str) -> ObjectSnapshot:
    return ObjectSnapshot(
        name=name, kind="model", type="MLP", rows=(), bytes_by_device={"cpu": 8}, tensors_by_device={"cpu": 1}
    )


def test_a_card_keeps_its_colour_and_history_when_the_engine_names_it(state: State) -> None:
    state.apply(DeviceSample(device="nvml:0", time_unix_s=1.0, memory_used_bytes=5))
    before = state.devices["nvml:0"]
    named = DeviceInfo(id="cuda:0", kind="cuda", name="A10", uuid="GPU-1")
    state.set_catalog(Catalog((CPU, named)))
    assert state.devices["cuda:0"] is before
    assert (before.colour, before.history.latest("memory_used_bytes"), before.info) == (0, 5.0, named)
    assert state.usable_devices == ["cpu", "cuda:0"]


def test_what_is_not_known_is_a_gap_and_not_a_zero(state: State) -> None:
    state.apply(DeviceSample(device="cpu", time_unix_s=1.0, memory_used_bytes=7))
    state.apply(DeviceSample(device="cpu", time_unix_s=2.0))
    values = state.devices["cpu"].history.readings("memory_used_bytes")[1]
    assert values[0] == 7
    assert math.isnan(values[1])


def test_readings_of_unknown_devices_are_ignored(state: State) -> None:
    assert state.apply(DeviceSample(device="cuda:7", time_unix_s=1.0)) is Change.NOTHING


def test_the_parts_of_the_memory_add_up(state: State) -> None:
    device = state.devices["cpu"]
    state.apply(DeviceSample(device="cpu", time_unix_s=1.0, memory_used_bytes=600, memory_total_bytes=1000))
    assert device.parts == MemoryParts(None, None, None, None, 600, 400)
    state.apply(
        AllocatorSample(
            device="cpu",
            time_unix_s=1.0,
            allocated_bytes=150,
            reserved_bytes=200,
            context_bytes=100,
            workspace_bytes=120,
        )
    )
    assert device.parts == MemoryParts(120, 30, 50, 100, 300, 400)
    assert sum(part or 0 for part in device.parts) == 1000


def test_objects_come_change_and_go(state: State) -> None:
    assert state.apply(ObjectChanged(snapshot=snapshot("mlp"))) is Change.OBJECTS
    assert list(state.objects) == ["mlp"]
    state.apply(ObjectRemoved(name="mlp"))
    assert not state.objects


def test_a_run_from_warming_up_to_its_end(state: State) -> None:
    state.apply(BenchPreparing(run=4, spec=SPEC, simulated=False))
    run = state.runs[4]
    assert run.started_unix_s is None
    assert state.active_runs == [run]
    state.apply(BenchStarted(run=4, time_unix_s=10.0))
    state.apply(BenchPoint(run=4, device="cpu", time_unix_s=11.0, tflops=0.5, iterations=3, seconds=0.05))
    assert state.devices["cpu"].throughput.latest("tflops") == 0.5
    assert [marker.text for marker in state.markers] == ["matmul cpu"]
    state.apply(BenchEnded(run=4, time_unix_s=12.0, result=None, reason="out of memory"))
    assert (run.ended, run.reason) == (True, "out of memory")
    assert math.isnan(state.devices["cpu"].throughput.latest("tflops")), "the next run is not joined to this one"


def test_a_run_that_fails_while_it_warms_up_is_seen(state: State) -> None:
    state.apply(BenchPreparing(run=4, spec=SPEC, simulated=False))
    state.apply(BenchEnded(run=4, time_unix_s=12.0, result=None, reason="no such product"))
    assert state.runs[4].reason == "no such product"


def test_moves_leave_markers_and_moves_to_where_it_is_do_not(state: State) -> None:
    report = MoveReport(
        objects=("mlp",), source=("cpu",), destination="vgpu:1", dtype=None, parameters=4, buffers=0, gradients=0,
        tensors=0, bytes=8,
        seconds=1.0, wall_seconds=1.0, gb_per_s=None, simulated=True,
    )  # fmt: skip
    state.apply(Moved(report=report, time_unix_s=3.0))
    assert [marker.text for marker in state.markers] == ["mlp → vgpu:1"]


@pytest.mark.parametrize(
    ("changes", "text", "kind"),
    [
        ({}, "x → vgpu:1", "move"),
        ({"dtype": "float16"}, "x → vgpu:1, float16", "move"),
        ({"copied": True, "created": ("x2",)}, "x copied to vgpu:1", "copy"),
        ({"source": ("vgpu:1",), "dtype": "float16"}, "x cast to float16", "cast"),
        ({"source": ("vgpu:1",)}, "x cast back", "cast"),
        ({"objects": ("x", "y"), "source": ("vgpu:1",), "dtype": "int8"}, "2 objects cast to int8", "cast"),
    ],
)
def test_moves_casts_and_copies_each_have_their_own_words_and_marker(
    state: State, changes: dict[str, object], text: str, kind: str
) -> None:
    report = MoveReport(
        objects=("x",), source=("cpu",), destination="vgpu:1", dtype=None, parameters=0, buffers=0, gradients=0,
        tensors=1, bytes=8,
        seconds=1.0, wall_seconds=1.0, gb_per_s=None, simulated=True,
    )  # fmt: skip
    state.apply(Moved(report=msgspec.structs.replace(report, **changes), time_unix_s=3.0))
    [marker] = state.markers
    assert (marker.text, marker.kind, marker.device) == (text, kind, "vgpu:1")


def test_a_lost_engine_takes_its_objects_and_jobs_along_and_is_said(state: State) -> None:
    state.apply(READY)
    state.apply(ObjectChanged(snapshot=snapshot("mlp")))
    state.apply(JobStarted(request=1, title="moving", time_unix_s=1.0))
    state.apply(BenchPreparing(run=2, spec=SPEC, simulated=False))
    state.apply(UndoState(title="the move", kept_bytes=3))
    state.apply(EngineLost(reason="It was killed.", will_restart=True, time_unix_s=5.0))
    assert state.engine is None
    assert not state.objects
    assert not state.jobs
    assert not state.active_runs
    assert state.undo.title is None
    assert state.answer is not None
    assert state.answer.failed
    assert state.log[-1].level == "error"
    state.apply(EngineLost(reason="It is started again in /py.", will_restart=True, time_unix_s=6.0, asked=True))
    assert (state.answer.title, state.answer.failed) == ("The engine is restarted", False)
    assert (state.log[-1].level, state.markers[-1].text) == ("info", "engine restarted")


def test_jobs_come_and_go(state: State) -> None:
    state.apply(JobStarted(request=1, title="moving", time_unix_s=1.0))
    assert [job.title for job in state.jobs.values()] == ["moving"]
    state.apply(JobEnded(request=1, ok=True, time_unix_s=2.0))
    assert not state.jobs


def test_the_first_page_follows_the_catalog_until_something_happens(state: State) -> None:
    state.apply(READY)
    first = state.answer
    assert first is not None
    assert first.title == "No GPU can be used here"
    assert [offer.label for offer in first.offers] == ["Add two virtual GPUs"]
    state.set_catalog(Catalog((CPU, DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", simulated=True))))
    assert state.answer is not None
    assert state.answer.title == "1 virtual GPU can be used"
    assert not state.answer.offers
    state.apply(Answer(title="mlp is on cpu", words=""))
    state.set_catalog(Catalog((CPU,)))
    assert state.answer.title == "mlp is on cpu"


def test_the_log_is_bounded(state: State) -> None:
    for number in range(5000):
        state.apply(Log(level="info", text=str(number), time_unix_s=0.0))
    assert len(state.log) == 2000
    assert state.log[-1].text == "4999"


def test_a_device_that_comes_back_has_its_history_and_colour(state: State) -> None:
    gpu = DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", uuid="VGPU-0", simulated=True)
    state.set_catalog(Catalog((CPU, CARD, gpu)))
    before = state.devices["vgpu:0"]
    state.set_catalog(Catalog((CPU, CARD)))
    state.set_catalog(Catalog((CPU, CARD, gpu)))
    assert state.devices["vgpu:0"] is before


def test_the_context_is_what_the_driver_counts_for_the_engine_beyond_its_allocator(state: State) -> None:
    state.apply(READY)
    uses = (ProcessUse(pid=READY.pid, memory_bytes=500), ProcessUse(pid=77, memory_bytes=100))
    inside = AllocatorSample(
        device="nvml:0", time_unix_s=1.0, allocated_bytes=150, reserved_bytes=200, workspace_bytes=150
    )
    state.apply(inside)
    state.apply(
        DeviceSample(device="nvml:0", time_unix_s=1.0, memory_used_bytes=650, memory_total_bytes=1000, processes=uses)
    )
    assert state.devices["nvml:0"].parts.context is None, (
        "not before the allocator has reserved the same before and after"
    )
    state.apply(inside)
    assert state.devices["nvml:0"].parts == MemoryParts(150, 0, 50, 300, 150, 350)


def test_a_device_that_left_long_ago_is_forgotten_and_one_that_left_just_now_comes_back_with_its_history() -> None:
    state = State()
    vgpu = [
        DeviceInfo(id=f"vgpu:{number}", kind="virtual", name="T4", uuid=f"VGPU-{number}", simulated=True)
        for number in range(3)
    ]
    state.set_catalog(Catalog((CPU, *vgpu)))
    for tick in range(3):
        for name in ("cpu", "vgpu:0", "vgpu:1", "vgpu:2"):
            state.apply(DeviceSample(device=name, time_unix_s=1000.0 + tick, memory_used_bytes=5))
    state.set_catalog(Catalog((CPU,)))
    state.set_catalog(Catalog((CPU, vgpu[0])))
    assert len(state.devices["vgpu:0"].history) == 3
    state.apply(DeviceSample(device="cpu", time_unix_s=1002.0 + LEFT_S + 1, memory_used_bytes=5))
    state.set_catalog(Catalog((CPU, vgpu[0])))
    state.set_catalog(Catalog((CPU, *vgpu)))
    assert [len(device.history) for device in state.devices.values()] == [5, 3, 0, 0]


def test_an_engine_that_is_restarted_with_an_empty_workspace_restores_nothing_and_says_so_of_nothing() -> None:
    state = State()
    state.apply(EngineLost(reason="It was killed.", will_restart=True, time_unix_s=5.0))
    assert state.answer is not None
    assert state.answer.words == "It was killed. It is being restarted."
    state.apply(Rebuilt(restored=(), lost=()))
    assert (state.answer.title, state.answer.facts) == ("The engine was restarted", ())
