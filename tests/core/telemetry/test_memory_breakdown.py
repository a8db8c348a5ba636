"""The parts of a card's memory: they add up to the byte on virtual GPUs; on real ones unknown parts stay unknown."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.engine.engine import AllocatorSampler
from devexplorer.core.models.walk import Holdings
from devexplorer.core.records import AllocatorSample, DeviceInfo, DeviceSample, Event, ObjectUse, ProcessUse
from devexplorer.core.session.state import State
from devexplorer.core.telemetry.memory_breakdown import (
    PART_TEXTS,
    ContextEstimator,
    MemoryParts,
    memory_parts,
    memory_views,
    why_they_differ,
)
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES, VirtualMachine
from devexplorer.core.virtual.device.memory import OutOfDeviceMemoryError

MIB, GIB = 1 << 20, 1 << 30
CUDA = DeviceInfo(
    id="cuda:0", kind="cuda", name="NVIDIA A10", nvml_index=1, cuda_ordinal=0, memory_total_bytes=24 * GIB
)
ENGINE = 77


def machine_of(spec: str = "Tesla T4") -> VirtualMachine:
    machine = VirtualMachine(clock=lambda: 0.0, host_free=lambda: None)
    machine.add(parse_virtual(spec))
    return machine


class Watched:
    """Samples the allocators of a virtual machine into a state, which checks the parts after every event of the
    device."""

    def __init__(self, machine: VirtualMachine) -> None:
        self.state = State()
        self.state.set_catalog(Catalog(machine.devices(), ()))
        self.held = Holdings({}, {})
        self.checked = 0
        workspace = SimpleNamespace(holdings=lambda: self.held)
        self.allocator_sampler = AllocatorSampler(self._take, DeviceRegistry([machine]), workspace, lambda: 1.0)  # type: ignore[arg-type]

    def _take(self, event: Event) -> None:
        self.state.apply(event)
        if isinstance(event, DeviceSample):
            device = self.state.devices[event.device]
            parts, total = device.parts, device.total_bytes
            known = [part for part in parts[:5] if part is not None]
            assert len(known) == 5
            assert all(part >= 0 for part in known)
            assert sum(known) == parts.used == event.memory_used_bytes
            assert sum(known) + (parts.free or 0) + (parts.driver or 0) == total == event.memory_total_bytes
            assert event.memory_free_bytes == parts.free
            self.checked += 1


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("allocate"), st.one_of(st.integers(1, 4096), st.integers(1, 64 * MIB), st.integers(1, 6 * GIB))
        ),
        st.tuples(st.just("free"), st.integers(0, 1000)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("hold"), st.integers(0, 8 * GIB)),
    ),
    max_size=40,
)


@given(steps)
@settings(deadline=None)
def test_the_parts_add_up_to_the_byte_whatever_is_done(actions: list[tuple[str, int]]) -> None:
    machine = machine_of()
    watched, live = Watched(machine), []
    for action, value in actions:
        if action == "allocate":
            try:
                live.append(machine.gpu(0).memory.allocate(value))
            except OutOfDeviceMemoryError:
                pass
        elif action == "free" and live:
            machine.gpu(0).memory.free(live.pop(value % len(live)))
        elif action == "release":
            machine.empty_cache("vgpu:0")
        elif action == "hold":  # what objects hold is published at another moment than what the allocator counts
            watched.held = Holdings({"vgpu:0": value}, {"vgpu:0": (ObjectUse("x", value),)})
        watched.allocator_sampler.read()
    assert watched.checked == len(actions)


def test_the_parts_add_up_while_another_thread_allocates() -> None:
    machine = machine_of("2x Tesla T4")
    watched, stop = Watched(machine), threading.Event()

    def work() -> None:
        gpu, number = machine.gpu(1), 0
        while not stop.is_set():
            number += 1
            blocks = [gpu.memory.allocate(number % 7 * 3 * MIB + 1) for _ in range(8)]
            for block in blocks:
                gpu.memory.free(block)
            if number % 5 == 0:
                gpu.memory.empty_cache()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(100):
            watched.allocator_sampler.read()
    finally:
        stop.set()
        thread.join(10)
    assert watched.checked == 200
    assert watched.state.devices["vgpu:1"].parts.context == CONTEXT_BYTES


def test_a_window_between_the_two_readings_of_a_moment_sees_parts_that_add_up_too() -> None:
    machine = machine_of()
    state = State()
    state.set_catalog(Catalog(machine.devices(), ()))
    for event in machine.readings("vgpu:0", 1.0):
        state.apply(event)
    machine.gpu(0).memory.allocate(30 * MIB)
    inside, _ = machine.readings("vgpu:0", 1.1)
    state.apply(inside)  # the other one has not arrived yet
    device = state.devices["vgpu:0"]
    assert device.parts.used == 30 * MIB + CONTEXT_BYTES
    assert (device.parts.used or 0) + (device.parts.free or 0) + (device.parts.driver or 0) == device.total_bytes


# --- real cards


def inside(allocated: int, reserved: int, **more: int) -> AllocatorSample:
    return AllocatorSample(device="cuda:0", time_unix_s=1.0, allocated_bytes=allocated, reserved_bytes=reserved, **more)  # type: ignore[arg-type]


def test_a_real_card_is_split_into_all_parts() -> None:
    parts = memory_parts(12 * GIB, 24 * GIB, inside(6 * GIB, 8 * GIB, workspace_bytes=4 * GIB), GIB, driver=GIB // 2)
    assert parts == MemoryParts(4 * GIB, 2 * GIB, 2 * GIB, GIB, 3 * GIB, 12 * GIB - GIB // 2, GIB // 2)
    assert parts.used == 12 * GIB


def test_a_context_that_is_not_known_is_not_0_and_stays_with_the_other_processes() -> None:
    parts = memory_parts(12 * GIB, 24 * GIB, inside(6 * GIB, 8 * GIB), None)
    assert parts.context is None
    assert parts.other_processes == 4 * GIB
    assert "driver does not report" in PART_TEXTS["unsplit"].definition


def test_readings_of_different_moments_give_no_negative_part() -> None:
    parts = memory_parts(GIB, 24 * GIB, inside(6 * GIB, 8 * GIB), GIB)
    assert parts.other_processes == 0
    assert memory_parts(None, 24 * GIB, inside(6 * GIB, 8 * GIB), None).other_processes is None


def test_without_an_allocator_only_the_sum_is_known() -> None:
    assert memory_parts(5, 12, None, None) == MemoryParts(None, None, None, None, 5, 7)
    assert memory_parts(None, 12, None, None).free is None


class Card:
    """Readings of a card as they arrive: a list of processes every few samples, the allocator between them."""

    def __init__(self) -> None:
        self.watch = ContextEstimator()
        self._list: tuple[ProcessUse, ...] | None = None

    def list_says(self, own: int | None, *, pid: int = ENGINE) -> None:
        self._list = (ProcessUse(pid, "python", own), ProcessUse(5, "other", GIB))
        self.repeat()

    def repeat(self) -> None:
        self.watch.see_sample(DeviceSample(device="cuda:0", time_unix_s=1.0, processes=self._list), ENGINE)

    def allocator(self, reserved: int) -> None:
        self.watch.see_allocator(inside(0, reserved))


def test_the_context_is_what_the_process_uses_beyond_the_allocator() -> None:
    card = Card()
    card.allocator(2 * GIB)
    assert card.watch.bytes is None
    card.list_says(2 * GIB + 400 * MIB)
    card.allocator(2 * GIB)
    assert card.watch.bytes == 400 * MIB


def test_a_list_that_is_two_seconds_old_is_not_subtracted_from() -> None:
    card = Card()
    card.allocator(GIB)
    card.list_says(GIB + 400 * MIB)
    card.allocator(GIB)
    for reserved in (2 * GIB, 2 * GIB, 3 * GIB, GIB // 2, GIB // 2):
        card.repeat()
        card.allocator(reserved)
        assert card.watch.bytes == 400 * MIB
    card.list_says(GIB // 2 + 450 * MIB)
    card.allocator(GIB // 2)
    assert card.watch.bytes == 450 * MIB


def test_a_list_that_was_read_while_memory_was_reserved_waits_for_the_next_one() -> None:
    card = Card()
    card.allocator(GIB)
    card.list_says(GIB + 400 * MIB)
    card.allocator(2 * GIB)
    assert card.watch.bytes is None
    card.repeat()
    card.list_says(
        GIB + 400 * MIB
    )  # equal, and new all the same: this sampler repeats the very same list between two readings
    card.allocator(2 * GIB)
    assert card.watch.bytes is None, "less than the allocator has reserved cannot be"
    card.list_says(2 * GIB + 400 * MIB)
    card.allocator(2 * GIB)
    assert card.watch.bytes == 400 * MIB


def test_a_replayed_recording_whose_lists_are_copies_does_not_count_them_as_new() -> None:
    card = Card()
    card.allocator(GIB)
    card.list_says(GIB + 400 * MIB)
    card.allocator(GIB)
    for _ in range(5):
        card.list_says(GIB + 400 * MIB)  # a copy each time, never the same object
        card.allocator(GIB // 2)
    assert card.watch.bytes == 400 * MIB


@pytest.mark.parametrize(("own", "pid"), [(None, ENGINE), (GIB, 4)])
def test_a_process_that_the_driver_does_not_tell_has_no_known_context(own: int | None, pid: int) -> None:
    card = Card()
    card.allocator(GIB)
    card.list_says(own, pid=pid)
    card.allocator(GIB)
    assert card.watch.bytes is None


def test_the_context_ends_with_the_engine() -> None:
    card = Card()
    card.allocator(GIB)
    card.list_says(2 * GIB)
    card.allocator(GIB)
    card.watch.forget()
    assert card.watch.bytes is None


# --- messages


def test_the_same_memory_is_counted_five_times_from_wide_to_narrow() -> None:
    views = memory_views(CUDA, 3 * GIB, 2 * GIB, inside(MIB, 20 * MIB, workspace_bytes=MIB // 2))
    assert [view.bytes for view in views] == [3 * GIB, 2 * GIB, 20 * MIB, MIB, MIB // 2]
    assert "-i 1 " in views[0].question, "nvidia-smi counts cards in another order than torch"
    assert views[2].question == 'torch.cuda.memory_reserved("cuda:0")'
    assert [view.bytes for view in memory_views(CUDA, None, None, None)] == [None] * 5


def test_why_the_counts_differ_names_every_part_with_its_bytes_and_its_remedy() -> None:
    parts = MemoryParts(4 * MIB, MIB, 16 * MIB, 400 * MIB, 700 * MIB, GIB)
    words = why_they_differ(CUDA, parts, parts.used)
    assert (
        words
        == "nvidia-smi says 1.09 GiB; the tensors of named objects use 4.00 MiB. The difference: 400.00 MiB of CUDA"
        " context and libraries (freed when its process ends), 16.00 MiB cached by torch, 1.00 MiB in "
        "live tensors that no object holds (rounding included) and 700.00 MiB of other"
        " processes."
    )
    unknown = why_they_differ(CUDA, parts._replace(context=None), parts.used)
    assert "700.00 MiB of CUDA context and other processes" in unknown
    assert why_they_differ(CUDA, MemoryParts(5, 0, 0, 0, 0, 7), 5).endswith("There is no difference.")
    assert "belongs to other processes" in why_they_differ(CUDA, memory_parts(5, 12, None, None), 5)
