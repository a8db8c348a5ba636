"""The sampler: readings of a tick, its cadence, and that a hanging or lost card does not delay others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from fakes.nvml import FakeCard, FakeNvml, opened
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.devices.cpu import CpuFacts, CpuReader
from devexplorer.core.devices.nvml.library import Card, Nvml
from devexplorer.core.records import DeviceDetails, DeviceSample, Event, Problem
from devexplorer.core.telemetry.sampler import FEWER_S, CardReader, Sampler, Schedule, next_due

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A sampler over a fake NVML, and its output."""

    def __init__(self, fake: FakeNvml, **options: object) -> None:
        self.events: list[Event] = []
        self.announced: list[tuple[tuple[Card, ...], tuple[Problem, ...]]] = []
        nvml = Nvml(fake, hidden_processes=lambda: False)
        cpu = CpuReader(CpuFacts("x", 1, 1 << 40, None), percent=lambda: 5.0)
        self.sampler = Sampler(
            self.events.append,
            nvml,
            cpu,
            on_cards=lambda cards, problems: self.announced.append((cards, problems)),
            **options,  # type: ignore[arg-type]
        )

    def samples(self, device: str) -> list[DeviceSample]:
        return [event for event in list(self.events) if isinstance(event, DeviceSample) and event.device == device]


def until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


@pytest.fixture
def gates() -> Iterator[list[threading.Event]]:
    """Releases blocked calls at the end of a test, so that no thread is left."""
    opened: list[threading.Event] = []
    yield opened
    for gate in opened:
        gate.set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("sampler")])


@given(st.floats(0, 1e6), st.floats(0, 100), st.floats(0.01, 10))
def test_ticks_are_on_the_cadence_and_missed_ones_are_skipped(due: float, late: float, interval: float) -> None:
    following = next_due(due, due + late, interval)
    assert following > due
    assert following - (due + late) <= interval * (1 + 1e-6) + 1e-6
    assert following >= due + late - 1e-6
    steps = (following - due) / interval
    assert steps == pytest.approx(round(steps), abs=1e-3)


def test_a_tick_reads_the_cpu_and_every_card_and_announces_them() -> None:
    bench = Bench(FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B, used=7)), unix_clock=lambda: 50.0)
    assert not bench.sampler.opened
    bench.sampler.tick()
    assert {event.device for event in bench.events if isinstance(event, DeviceSample)} == {"cpu", "nvml:0", "nvml:1"}
    (second,) = bench.samples("nvml:1")
    assert (second.memory_used_bytes, second.time_unix_s, second.processes) == (7, 50.0, ())
    ((cards, problems),) = bench.announced
    assert [card.uuid for card in cards] == [A, B]
    assert problems == ()
    bench.sampler.tick()
    assert len(bench.announced) == 1, "nothing changed"
    assert bench.sampler.stop()


def test_cards_go_by_torch_s_names_once_they_are_known() -> None:
    bench = Bench(FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B)))
    bench.sampler.tick()
    bench.sampler.set_names({B.removeprefix("GPU-").upper(): "cuda:0", "not a uuid": "cuda:9"})
    bench.events.clear()
    bench.sampler.tick()
    assert len(bench.samples("nvml:0")) == len(bench.samples("cuda:0")) == 1
    assert bench.samples("nvml:1") == []
    bench.sampler.stop()


def test_a_mig_instance_is_sampled_only_when_torch_uses_it() -> None:
    part = FakeCard(uuid="MIG-cccccccc-0000-0000-0000-000000000003", used=3)
    bench = Bench(FakeNvml(FakeCard(uuid=A, mig=1, instances=[part])))
    bench.sampler.tick()
    assert len(bench.samples("nvml:0")) == 1
    bench.sampler.set_names({part.uuid: "cuda:0"})
    bench.sampler.tick()
    assert [sample.memory_used_bytes for sample in bench.samples("cuda:0")] == [3]
    bench.sampler.stop()


def test_without_nvml_there_is_the_cpu_and_the_reason() -> None:
    fake = FakeNvml()
    fake.fail("nvmlInit", FakeNvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    bench = Bench(fake)
    bench.sampler.tick()
    assert len(bench.samples("cpu")) == 1
    ((cards, problems),) = bench.announced
    assert cards == ()
    assert "no NVIDIA driver" in problems[0].reason
    assert bench.sampler.stop()


def test_processes_have_a_slower_pace() -> None:
    fake, clock = FakeNvml(FakeCard(uuid=A)), Clock()
    bench = Bench(fake, clock=clock, slow_interval_s=2.0)
    for _ in range(17):
        bench.sampler.tick()
        clock.now += 0.125
    assert fake.calls["nvmlDeviceGetPowerUsage"] == 17
    assert fake.calls["nvmlDeviceGetComputeRunningProcesses"] == 2
    assert all(sample.processes == () for sample in bench.samples("nvml:0")), "the last answer stands in between"
    bench.sampler.stop()


def test_a_problem_that_appears_is_announced_once_and_its_end_too() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    bench = Bench(fake)
    bench.sampler.tick()
    fake.lose(0)
    bench.sampler.tick()
    bench.sampler.tick()
    fake.heal()
    bench.sampler.tick()
    assert [len(problems) for _, problems in bench.announced] == [0, 1, 0]
    assert [sample.temperature_c for sample in bench.samples("nvml:0")] == [61.0, None, None, 61.0]
    bench.sampler.stop()


def test_the_threads_sample_everything_and_are_gone_after_stop() -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B))
    bench = Bench(fake, interval_s=0.005)
    bench.sampler.start()
    until(lambda: all(len(bench.samples(device)) > 3 for device in ("cpu", "nvml:0", "nvml:1")))
    running = {thread.name for thread in threading.enumerate() if thread.name.startswith("sampler")}
    assert {"sampler", "sampler-1"} <= running
    with pytest.raises(RuntimeError, match="already running"):
        bench.sampler.start()
    assert bench.sampler.stop(5.0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sampler")]
    assert fake.initialised == 0, "NVML is closed"
    assert len(bench.announced) == 1


def test_a_card_that_hangs_delays_no_other_and_gets_a_gap(gates: list[threading.Event]) -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B))
    bench = Bench(fake, interval_s=0.005, patience_s=0.05)
    bench.sampler.start()
    until(lambda: bench.samples("nvml:0"))
    gate = fake.block("nvmlDeviceGetPowerUsage", card=0)
    gates.append(gate)
    until(lambda: bench.announced and bench.announced[-1][1])
    assert bench.announced[-1][1][0].device == "nvml:0"
    assert bench.samples("nvml:0")[-1].memory_used_bytes is None, "a gap, not the last value for ever"
    stuck, other = len(bench.samples("nvml:0")), len(bench.samples("nvml:1"))
    until(lambda: len(bench.samples("nvml:1")) > other + 5)
    assert len(bench.samples("nvml:0")) == stuck, "one gap is enough"
    gate.set()
    until(lambda: bench.samples("nvml:0")[-1].memory_used_bytes is not None)
    until(lambda: not bench.announced[-1][1])
    assert bench.sampler.stop(5.0)


class UnhurriedNvml(FakeNvml):
    """As shared and virtualised cards answer: every call comes back, and takes its time."""

    def _enter(self, function: str, *card: int) -> None:
        time.sleep(0.005)
        super()._enter(function, *card)


def test_a_card_whose_calls_take_long_but_come_back_is_slow_and_not_lost() -> None:
    bench = Bench(UnhurriedNvml(FakeCard(uuid=A), FakeCard(uuid=B)), patience_s=0.05, slow_interval_s=0.1)
    first = bench.sampler.read_round(patience_s=0.01, list_patience_s=10)
    assert all(sample.memory_used_bytes is not None for sample in first[1:]), "the first reading is waited for"
    for _ in range(3):
        assert [sample.temperature_c for sample in bench.sampler.read_round(patience_s=0.01)[1:]] == [61.0, 61.0]
    slow = [(problem.device, problem.field) for problem in bench.sampler.problems if "is slow" in problem.reason]
    assert slow == [("nvml:0", "readings"), ("nvml:1", "readings")], "a problem of a whole card would be an alarm"
    bench.sampler.stop()

    bench = Bench(
        UnhurriedNvml(FakeCard(uuid=A), FakeCard(uuid=B)), interval_s=0.01, patience_s=0.05, slow_interval_s=0.1
    )
    bench.sampler.start()
    until(lambda: len(bench.samples("nvml:1")) > 8)
    assert all(sample.memory_used_bytes is not None for sample in bench.samples("nvml:1")), "no gap"
    of_cards = [problem for _, problems in bench.announced for problem in problems if problem.device]
    assert all("is slow" in problem.reason for problem in of_cards)
    assert bench.sampler.stop(5.0)


class Hands:
    """In place of the sampler's threads: jobs wait until they are done here, and it is counted who was called."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.called: list[int] = []

    @property
    def waiting(self) -> int:
        return len(self.jobs)

    def add(self, jobs: Iterable[Callable[[], None]]) -> None:
        self.jobs.extend(jobs)

    def call(self, hands: int) -> None:
        self.called.append(hands)

    def work(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def test_a_slow_driver_gets_as_many_threads_as_it_needs_and_a_quick_one_one() -> None:
    clock = Clock()
    bench = Bench(FakeNvml(*(FakeCard(uuid=f"{A[:-1]}{number}") for number in range(8))), clock=clock)
    sampler = bench.sampler
    sampler.tick()
    assert sampler.stop()
    hands = Hands()
    sampler._crew = hands  # type: ignore[assignment]

    def ticks(number: int, *, late: bool) -> list[int]:
        """How many threads begin each tick; `late`: cards wait when the sampler looks after them."""
        begun = []
        for _ in range(number):
            hands.called.clear()
            sampler._have_cards_read()
            begun.append(hands.called[0])
            if late:
                sampler._help_out()
                assert hands.called[1] == 8, "nobody waits longer"
            hands.work()
            clock.now += 0.1
        return begun

    assert ticks(3, late=False) == [1, 1, 1]
    assert ticks(5, late=True) == [1, 2, 4, 8, 8]
    clock.now += FEWER_S
    assert ticks(2, late=False) == [4, 4]
    clock.now += FEWER_S
    assert ticks(1, late=False) == [2]
    clock.now += FEWER_S
    assert ticks(1, late=False) == [1]


def test_in_a_tick_of_the_window_it_looks_after_the_cards_when_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    wait = Sampler._rings_within
    monkeypatch.setattr(Sampler, "_rings_within", lambda self, seconds: (waits.append(seconds), wait(self, seconds))[1])
    bench = Bench(FakeNvml(FakeCard(uuid=A)), interval_s=0.1)
    bench.sampler.start()
    until(lambda: len(waits) >= 6)
    assert bench.sampler.stop(5.0)
    assert waits[1:6:2] == [0, 0, 0], "each wake-up of an idle machine is dear"


def test_stop_leaves_a_stuck_thread_behind_and_does_not_close_nvml_under_it(gates: list[threading.Event]) -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    bench = Bench(fake, interval_s=0.005)
    bench.sampler.start()
    until(lambda: bench.samples("nvml:0"))
    gates.append(fake.block("nvmlDeviceGetPowerUsage"))
    calls = fake.calls["nvmlDeviceGetPowerUsage"]
    until(lambda: fake.calls["nvmlDeviceGetPowerUsage"] > calls)
    assert not bench.sampler.stop(0.05)
    assert fake.initialised == 1
    count = len(bench.events)
    gates[0].set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("sampler")])
    assert len(bench.events) == count, "what comes back after the stop is dropped"


def test_nvml_that_takes_long_to_start_does_not_hold_up_the_cpu(gates: list[threading.Event]) -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    gates.append(fake.block("nvmlInit"))
    bench = Bench(fake, interval_s=0.005)
    bench.sampler.start()
    until(lambda: len(bench.samples("cpu")) > 3)
    assert bench.announced == []
    gates[0].set()
    until(lambda: bench.samples("nvml:0"))
    until(lambda: bench.announced)
    assert bench.sampler.stop(5.0)


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan")])
def test_the_interval_is_positive(interval: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        Bench(FakeNvml(), interval_s=interval)


def test_a_round_has_the_cpu_first_and_the_cards_in_nvml_s_order() -> None:
    bench = Bench(FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B)))
    bench.sampler.set_names({A: "cuda:1", B: "cuda:0"})
    assert [sample.device for sample in bench.sampler.read_round()] == ["cpu", "cuda:1", "cuda:0"]
    assert not [event for event in bench.events if isinstance(event, DeviceSample)], "the one who asks has them"
    assert {event.device for event in bench.events if isinstance(event, DeviceDetails)} == {"cuda:0", "cuda:1"}
    bench.sampler.stop()


def test_a_sampler_that_runs_by_itself_reads_no_rounds() -> None:
    bench = Bench(FakeNvml(FakeCard(uuid=A)), interval_s=0.005)
    bench.sampler.start()
    with pytest.raises(RuntimeError, match="runs by itself"):
        bench.sampler.read_round()
    assert bench.sampler.stop(5.0)


def test_details_come_seldom_and_at_once_under_a_new_name() -> None:
    fake, clock = FakeNvml(FakeCard(uuid=A)), Clock()
    bench = Bench(fake, clock=clock, details_interval_s=30.0)

    def details() -> list[str]:
        return [event.device for event in bench.events if isinstance(event, DeviceDetails)]

    bench.sampler.tick()
    bench.sampler.tick()
    assert details() == ["nvml:0"]
    asked = fake.calls["nvmlDeviceGetVbiosVersion"]
    bench.sampler.set_names({A: "cuda:0"})
    bench.sampler.tick()
    assert details() == ["nvml:0", "cuda:0"]
    assert fake.calls["nvmlDeviceGetVbiosVersion"] == asked, "nothing was asked again for it"
    clock.now += 29.0
    bench.sampler.tick()
    assert len(details()) == 2
    clock.now += 2.0
    bench.sampler.tick()
    assert details()[2:] == ["cuda:0"]
    bench.sampler.stop()


def test_another_interval_counts_at_once() -> None:
    bench = Bench(FakeNvml(FakeCard(uuid=A)), interval_s=1000.0)
    bench.sampler.start()
    until(lambda: bench.samples("cpu"))
    assert len(bench.samples("cpu")) == 1
    bench.sampler.set_interval(0.005)
    until(lambda: len(bench.samples("nvml:0")) > 3)
    bench.sampler.set_interval(1000.0)
    with pytest.raises(ValueError, match="positive"):
        bench.sampler.set_interval(0.0)
    assert bench.sampler.stop(5.0), "also in the middle of a long interval"


def test_slow_fields_keep_to_every_fifth_tick_when_ticks_are_seldom() -> None:
    fake, clock = FakeNvml(FakeCard(uuid=A)), Clock()
    bench = Bench(fake, clock=clock)
    bench.sampler.set_interval(1.0)
    for _ in range(11):
        bench.sampler.tick()
        clock.now += 1.0
    assert fake.calls["nvmlDeviceGetComputeRunningProcesses"] == 3, "at 0, 5 and 10 s"
    bench.sampler.stop()


def test_a_wall_clock_that_is_set_changes_only_the_stamps() -> None:
    wall = [1e9]
    bench = Bench(FakeNvml(FakeCard(uuid=A)), interval_s=0.005, unix_clock=lambda: wall[0])
    bench.sampler.start()
    for now in (1e9, 9e8, 2e9):
        wall[0] = now
        count = len(bench.samples("nvml:0"))
        until(lambda count=count: len(bench.samples("nvml:0")) > count + 3)  # type: ignore[misc]
        assert bench.samples("nvml:0")[-1].time_unix_s == now
    assert bench.sampler.stop(5.0)


@pytest.fixture
def put() -> list[Event]:
    return []


def reader_of(nvml: Nvml, put: list[Event]) -> CardReader:
    (card,) = nvml.cards()
    return CardReader(card, nvml, put.append, lambda reader: reader.card.nvml_id, Schedule(lambda: 0.0, lambda: 1.0))


def tick(reader: CardReader) -> None:
    """One tick with everything that it leaves for later."""
    jobs: list[Callable[[], None]] = []
    reader.tick(jobs.extend)
    while jobs:
        jobs.pop(0)()


@pytest.mark.parametrize("function", ["read", "read_slow", "read_details"])
def test_a_reading_that_fails_beyond_all_expectations_does_not_end_the_curve(
    put: list[Event], monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    nvml, _ = opened(FakeNvml(FakeCard(uuid="GPU-aaaaaaaa-0000-0000-0000-000000000001")))
    reader = reader_of(nvml, put)
    with monkeypatch.context() as broken:

        def fails(*_: object, **__: object) -> None:
            raise RuntimeError("nobody expected this")

        broken.setattr(nvml, function, fails)
        assert reader.claim()
        with pytest.raises(RuntimeError):
            tick(reader)
    assert reader.claim(), "it is free for the next tick"
    tick(reader)
    assert isinstance(put[-2 if isinstance(put[-1], DeviceDetails) else -1], DeviceSample)
    assert reader.claim()
    with monkeypatch.context() as broken:
        broken.setattr(nvml, "read", fails)
        with pytest.raises(RuntimeError):
            reader.answer(lambda *_: None)
    assert reader.claim()
