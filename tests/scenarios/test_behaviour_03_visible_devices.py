"""Behaviour 3: CUDA_VISIBLE_DEVICES is edited, the engine restarts with it, and both numbers and the UUID of each card
are shown.

With the real engine in its own process, as in the application: the variable affects a whole process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch
from fakes.nvml import FakeNvml
from fakes.virtual import UNAVAILABLE

from devexplorer.core.devices.cuda_visible_devices import card_number
from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import (
    AddVirtual,
    Answer,
    BuildModel,
    EngineReady,
    Event,
    JobEnded,
    Move,
    ObjectChanged,
)
from devexplorer.core.session.session import Session
from devexplorer.core.session.state import State

WAIT_S = 40.0
pytestmark = pytest.mark.usefixtures("warm_processes")


class Window:
    """A session and the window's state."""

    def __init__(self, kind: str) -> None:
        nvml = Nvml() if kind == "cuda" else Nvml(FakeNvml())
        self.session = Session(virtual_spec="2x Tesla T4" if kind == "vgpu" else None, nvml=nvml, drm=_NoDrm())
        self.state = State()
        self.seen: list[Event] = []
        self.session.start()

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            drained = self.session.drain()
            if drained.catalog is not None:
                self.state.set_catalog(drained.catalog)
            for event in drained.events:
                self.state.apply(event)
            self.seen += drained.events
            if (found := next((event for event in drained.events if wanted(event)), None)) is not None:
                return found
            time.sleep(0.005)
        raise AssertionError(f"it did not come; the last that came: {self.seen[-3:]}")

    def choose(self, value: str | None) -> Answer:
        """Edit the variable, and read the window's explanation."""
        self.session.set_visible_devices(value)
        answer = self.until(lambda event: isinstance(event, Answer) and event.title.startswith("CUDA_VISIBLE_DEVICES"))
        assert isinstance(answer, Answer)
        return answer

    def visible(self) -> list[str]:
        return [name for name in self.state.usable_devices if name != "cpu"]


class _NoDrm(Drm):
    def cards(self) -> tuple[()]:
        return ()


@pytest.fixture
def open_window() -> Iterator[Callable[[str], Window]]:
    windows: list[Window] = []

    def make(kind: str) -> Window:
        windows.append(Window(kind))
        windows[-1].until(lambda event: isinstance(event, EngineReady))
        return windows[-1]

    yield make
    for window in windows:
        assert window.session.close(3.0)


def test_on_the_cpu_alone_it_is_explained_and_virtual_gpus_are_offered(open_window: Callable[[str], Window]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    window = open_window("cpu")
    answer = window.choose("0")
    assert "CUDA reads this variable only once" in answer.words
    assert "this machine has none" in answer.words
    assert [offer.command for offer in answer.offers] == [AddVirtual(spec="2x Tesla T4")]
    assert window.visible() == []
    assert window.state.engine is not None
    assert window.state.engine.cuda_visible_devices == "0", "what the running engine has"


@pytest.mark.parametrize("kind", ["vgpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_engine_restarts_with_the_list_and_says_which_card_is_which(
    kind: str, open_window: Callable[[str], Window]
) -> None:
    if kind == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("this machine has no two CUDA devices")
    if kind == "vgpu" and UNAVAILABLE:
        pytest.skip(UNAVAILABLE)
    window = open_window(kind)
    first, second = (f"{kind}:{at}" for at in (0, 1))
    window.session.send(BuildModel(recipe="mlp"))
    done = window.session.send(Move(targets=("mlp",), device=second))
    window.until(lambda event: isinstance(event, JobEnded) and event.request == done)
    engine, before = window.state.engine, {name: window.state.devices[name].info for name in (first, second)}
    assert engine is not None

    answer = window.choose("1")
    now = window.state.devices[first].info
    assert window.visible() == [first]
    assert now.uuid == before[second].uuid, "it is the second card, and torch calls it the first"
    assert card_number(now) == card_number(before[second])
    assert window.state.engine is not None
    assert (window.state.engine.cuda_visible_devices, window.session.visible_devices) == ("1", "1")
    assert window.state.engine.pid != engine.pid
    facts = {fact.label: fact.value for fact in answer.facts}
    assert (facts["before"], facts["now"]) == (engine.cuda_visible_devices or "unset", "1")
    assert now.uuid is not None
    assert now.uuid in facts[first], "the UUID and the card's own number beside torch's"
    assert str(card_number(now)) in facts[first].split(now.uuid)[0]
    hidden = next(device.info for device in window.state.devices.values() if device.info.uuid == before[first].uuid)
    assert not hidden.usable
    assert "CUDA_VISIBLE_DEVICES=1" in (hidden.reason or "")
    assert "CUDA reads this variable only once" in answer.words, "why a running process notices nothing"
    assert "CUDA_VISIBLE_DEVICES" in answer.code

    assert "mlp" in facts["restored"]
    assert f"moving mlp to {second}: There is no device '{second}' here" in facts["not restored"]
    models = [event.snapshot for event in window.seen if isinstance(event, ObjectChanged)]
    assert set(models[-1].bytes_by_device) == {"cpu"}, "made again, and not where it was"
    if kind == "vgpu":
        window.choose("1,0")
        assert [window.state.devices[name].info.uuid for name in (first, second)] == [
            before[second].uuid,
            before[first].uuid,
        ]
        assert "no card is visible" in window.choose("").words.lower()
        assert window.visible() == []
