"""Objects that are copied to another machine with real engines: what a user does, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import two_machines
from fakes.engine import EngineHere
from fakes.hosts import HostHere
from fakes.nvml import FakeNvml
from fakes.two_machines import FarWayFake, TwoMachines
from PySide6.QtWidgets import QApplication, QMenu

from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.machines.window.machines import FarMachine
from devexplorer.core.records import Event, NewTensor
from devexplorer.core.session.session import Session
from devexplorer.gui.machines.copies import MENU
from devexplorer.gui.machines.room import room_of


class EngineHost(HostHere):
    """A host with an engine that does what it is told."""

    def _engine(self, put: Callable[[Event], None], *_: object, **options: object) -> EngineHere:  # type: ignore[override]
        engine = EngineHere(put, None)
        engine.put = put  # type: ignore[attr-defined]
        self.engines.append(engine)  # type: ignore[arg-type]
        return engine


class Desk(TwoMachines):
    """Both machines with real engines."""

    def __init__(self, qapp: QApplication, folder: Path) -> None:
        super().__init__(qapp, folder)
        self.host.session._engine.start()
        self.go_live()
        room = room_of(self.window.context)
        room.make_way = lambda host, python: FarWayFake(self.route, host, python)
        room.connect_to("forge")
        assert self.app.heartbeat is not None
        self.app.heartbeat.stop()
        self.until(lambda: self.window.context.far is not None and not self.state.away)
        self.far: FarMachine = room_of(self.window.context).others[0]
        room_of(self.window.context).show(self.app.shown.here)
        self.until(lambda: self.state.engine is not None and self.far.aside.engine is not None)

    def go_live(self) -> None:
        session = Session(make_engine=EngineHere, nvml=Nvml(FakeNvml()), drm=Drm(Path("/nowhere")), interval_s=0.02)
        self.app.connect(session).stop()

    def copy(self, name: str) -> None:
        """Copy to › Another machine › forge."""
        self.window.objects.select(name)
        menu = self.window.toolbar.buttons["copy"].menu()
        menu.aboutToShow.emit()
        *_, others = menu.findChildren(QMenu, MENU)  # those before it are about to go
        others.actions()[0].trigger()

    @property
    def said(self) -> str:
        return self.window.banner.words.full_text if self.window.banner.isVisible() else ""


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(two_machines, "HostHere", EngineHost)
    made = Desk(qapp, tmp_path)
    yield made
    made.end()


def test_a_second_copy_says_what_it_is_called_there(desk: Desk) -> None:
    desk.app.session.send(NewTensor(name="x", fill="randn", shape=(300,)))  # type: ignore[union-attr]
    desk.until(lambda: "x" in desk.state.objects and not desk.state.jobs)
    desk.copy("x")
    desk.until(lambda: "x" in desk.far.aside.objects and desk.said)
    assert desk.said == "x was copied to forge."
    desk.copy("x")
    desk.until(lambda: desk.said != "x was copied to forge.")
    assert desk.said == "x was copied to forge as x2."
    assert list(desk.far.aside.objects) == ["x", "x2"]
    room_of(desk.window.context).show(desk.far)
    desk.until(lambda: "x2" in desk.state.objects)
    assert desk.window.inspector.answer is desk.state.answer
    assert desk.state.answer is not None
    assert "It is called x2 here, because there was x already." in desk.state.answer.words


def test_one_that_cannot_be_loaded_there_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.app.session.send(NewTensor(name="x", fill="randn", shape=(300,)))  # type: ignore[union-attr]
    desk.until(lambda: "x" in desk.state.objects and not desk.state.jobs)
    send = desk.far.session.send

    def spoiled(command: object) -> int:
        for path in desk.host.server._copies.rglob("*.safetensors"):
            path.write_bytes(b"no tensors")
        return send(command)  # type: ignore[arg-type]

    monkeypatch.setattr(desk.far.session, "send", spoiled)
    desk.copy("x")
    desk.until(lambda: desk.said)
    assert desk.said.startswith("x arrived on forge and was not loaded: ")
    assert "x.safetensors" in desk.said
    assert not desk.far.aside.objects
