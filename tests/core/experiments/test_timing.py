"""Timing experiments: times without synchronising, the crossover, refusals, and stopping."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import pytest
from fakes.products import matmul_seconds
from places import Place, place_of

from devexplorer.core.base import BadInput, DevExplorerError, ProgressMonitor
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.experiments import timing
from devexplorer.core.experiments.records import (
    Crossover,
    CrossoverMeasured,
    CrossoverPoint,
    TimeWork,
    WorkTimed,
    alone,
    overtaking,
    with_copies,
)
from devexplorer.core.experiments.timing import crossed
from devexplorer.core.records import Answer
from devexplorer.core.virtual.device.cost import COPY_SECONDS, launch_seconds


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def printed(answer: Answer) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(answer.code, {})
    return out.getvalue().splitlines()


def points(*seconds: tuple[int, float, float, float]) -> tuple[CrossoverPoint, ...]:
    return tuple(
        CrossoverPoint(size=size, cpu_seconds=cpu, device_seconds=device, device_with_copies_seconds=copies)
        for size, cpu, device, copies in seconds
    )


# --- timing with and without synchronising


class SlowDevice:
    """A device that takes 3 s for each launch of 1 s, on a simulated clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0.0

    def launch(self) -> None:
        self.now += 1.0
        self.done = max(self.done, self.now) + 3.0

    def synchronize(self, device: str) -> None:
        self.now = max(self.now, self.done)

    def backend(self, device: str) -> SlowDevice:
        return self


def test_an_asynchronous_device_is_timed_until_the_launches_and_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowDevice()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: slow.now)
    slow.launch()  # what was waiting there before is no part of it
    times = timing._real(slow, "slow", slow.launch, 5)  # type: ignore[arg-type]
    assert times == (5.0, 16.0)  # five launches; the first ends its work at 4, each other 3 later


def test_the_simulated_times_are_those_of_the_cost_model(place: Place) -> None:
    (event,) = place.do(TimeWork(device="vgpu:1", size=2000, iterations=7)).events
    assert isinstance(event, WorkTimed)
    assert (event.device, event.size, event.iterations, event.simulated) == ("vgpu:1", 2000, 7, True)
    assert event.launched_seconds == pytest.approx(7 * launch_seconds())
    machine = place.registry.backend("vgpu:1")
    each = matmul_seconds(machine, "vgpu:1", 2000, 2000, 2000, "float32")
    assert event.finished_seconds == pytest.approx(7 * each)
    assert place.allocated("vgpu:1") == 0


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_the_code_times_the_same_work(place: Place, device: str) -> None:
    answer = place.do(TimeWork(device=device, size=8, iterations=2)).answer
    (line,) = printed(answer)
    launched, finished = (float(number) for number in line.strip("()").split(","))
    assert 0 < launched <= finished


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (TimeWork(device="vgpu:9"), "there is no device 'vgpu:9'"),
        (TimeWork(device="cpu", size=0), "every side is from 1"),
        (TimeWork(device="cpu", iterations=0), "0 iterations cannot be timed"),
        (TimeWork(device="cpu", iterations=100_000), "from 1 to 10000"),
        (TimeWork(device="vgpu:0", size=60_000), "a product of size 60000 needs .* on vgpu:0"),
    ],
)
def test_what_cannot_be_timed_is_refused(place: Place, command: TimeWork, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        place.do(command)


def test_what_would_take_minutes_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "LONGEST_SECONDS", 0.0)
    with pytest.raises(BadInput, match="nothing else could run until then; choose smaller ones"):
        place.do(TimeWork(device="cpu", size=8))
    with pytest.raises(BadInput, match="choose smaller ones"):
        place.do(Crossover(device="vgpu:0", sizes=(8, 16)))


def test_it_can_be_stopped_between_two_products(place: Place) -> None:
    with pytest.raises(DevExplorerError, match="stopped; nothing was timed"):
        dispatch(place.workspace, TimeWork(device="cpu", size=8), ProgressMonitor(cancelled=lambda: True))


# --- where a device overtakes


def test_it_overtakes_from_the_size_on_at_which_it_stays_faster() -> None:
    measured = points((16, 1, 4, 9), (32, 5, 4, 9), (64, 4, 5, 10), (128, 20, 6, 21), (256, 80, 9, 30))
    assert overtaking(measured, alone) == (128, 64)  # that it was faster at 32 was no overtaking
    assert overtaking(measured, with_copies) == (256, 128)
    assert overtaking(measured[::-1], alone) == (128, 64)


def test_it_can_be_faster_everywhere_or_nowhere() -> None:
    assert overtaking(points((16, 3, 1, 2), (32, 4, 1, 2)), alone) == (16, None)
    assert overtaking(points((16, 1, 1, 2), (32, 4, 4, 5)), alone) is None
    assert overtaking((), alone) is None


def test_the_words_say_where_both_ways() -> None:
    def words(*seconds: tuple[int, float, float, float]) -> str:
        return crossed(
            CrossoverMeasured(device="cuda:0", simulated=False, points=points(*seconds)), len(seconds), 2
        ).words

    some = words((16, 1, 4, 9), (32, 5, 4, 9))
    assert "cuda:0 is faster from size 32 up (at 16 the CPU is not slower)" in some
    assert "back, cuda:0 does not overtake the CPU within these sizes" in some
    assert "simulated" not in some
    assert "faster at every one of these sizes" in words((16, 3, 1, 2), (32, 4, 1, 2))


def test_simulated_seconds_are_those_of_the_cost_model_and_the_cpu_s_are_measured(place: Place) -> None:
    (measured,) = place.do(Crossover(device="vgpu:0", sizes=(16, 64))).events
    assert isinstance(measured, CrossoverMeasured)
    machine = place.registry.backend("vgpu:0")
    for point in measured.points:
        product = matmul_seconds(machine, "vgpu:0", point.size, point.size, point.size, "float32")
        copy = machine.gpu("vgpu:0").roofline.copy_seconds(None, 4 * point.size**2)  # type: ignore[attr-defined]
        assert point.device_seconds == pytest.approx(product)
        assert point.device_with_copies_seconds == pytest.approx(product + 3 * copy)
        assert copy > COPY_SECONDS
        assert point.cpu_seconds > 0
    assert place.allocated("vgpu:0") == 0


def test_when_it_is_stopped_the_sizes_until_then_are_answered_with(place: Place) -> None:
    said: list[str] = []
    progress = ProgressMonitor(report=lambda done, text, part="": said.append(text), cancelled=lambda: len(said) == 2)
    outcome = dispatch(place.workspace, Crossover(device="vgpu:0", sizes=(8, 16, 32)), progress)
    (measured,) = outcome.events
    assert isinstance(measured, CrossoverMeasured)
    assert [point.size for point in measured.points] == [8, 16]
    assert "stopped after 2 of 3 sizes" in outcome.answer.words
    assert said == ["size 8", "size 16"]
    with pytest.raises(DevExplorerError, match="nothing was measured"):
        dispatch(place.workspace, Crossover(device="vgpu:0"), ProgressMonitor(cancelled=lambda: True))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((), "0 different sizes are no curve"),
        ((64, 64), "1 different sizes"),
        (tuple(range(1, 40)), "choose from 2 to 16"),
        ((0, 16), "every side is from 1"),
    ],
)
def test_sizes_that_make_no_curve_are_refused(place: Place, sizes: tuple[int, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        place.do(Crossover(device="vgpu:0", sizes=sizes))


def test_the_code_compares_the_same_sizes(place: Place) -> None:
    lines = printed(place.do(Crossover(device="vgpu:0", sizes=(8, 16))).answer)
    assert [line.split()[0] for line in lines] == ["8", "16"]
    assert all(float(number) > 0 for line in lines for number in line.split()[1:])
