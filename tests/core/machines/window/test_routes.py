"""Ways to a host: what is done on them, and which failures may be others a moment later."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO

import pytest

from devexplorer.core.base import Cancelled
from devexplorer.core.machines.ssh.records import ConnectionFailed, ConnectionFailure, FailureKind, Prompt, Report
from devexplorer.core.machines.window import routes
from devexplorer.core.machines.window.link import CannotReach
from devexplorer.core.machines.window.routes import SshRoute


class PlayedConnection:
    """Connects, or raises what it is told."""

    raises: Exception | None = None

    def __init__(self, host: str, report: Callable[[Report], None]) -> None:
        self.host, self.report = host, report
        self.launched: list[str] = []
        self.answers: list[tuple[int, str | None]] = []
        self.closed = self.cancelled = False

    def open(self) -> None:
        self.report(Prompt(number=1, kind="password", text="password:"))
        if self.raises is not None:
            raise self.raises

    def launch(self, command: list[str], marker: str) -> tuple[IO[bytes], IO[bytes]]:
        self.launched = command
        assert command[-1] == marker
        return io.BytesIO(b"hello"), io.BytesIO()

    def answer(self, number: int, text: str | None) -> None:
        self.answers.append((number, text))

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[PlayedConnection]:
    monkeypatch.setattr(routes, "prepare", lambda connection, python: [python, "-P", "bootstrap"])
    monkeypatch.setattr(routes, "choose", lambda connection: "/found/python")
    return []


def route(made: list[PlayedConnection], python: str = "", raises: Exception | None = None) -> SshRoute:
    def make(host: str, report: Callable[[Report], None]) -> PlayedConnection:
        made.append(PlayedConnection(host, report))
        made[-1].raises = raises
        return made[-1]

    return SshRoute("forge", python, make)  # type: ignore[arg-type]


@pytest.mark.parametrize(("python", "runs"), [("", "/found/python"), ("/my/python", "/my/python")])
def test_the_proxy_is_started_in_the_python_there(made: list[PlayedConnection], python: str, runs: str) -> None:
    way = route(made, python)
    channel = way.open()
    assert made[0].launched[:-1] == [runs, "-P", "bootstrap", "devexplorer.core.machines.host", "proxy", "--marker"]
    assert channel.read(100) == b"hello"
    assert [type(report) for report in way.reports()] == [Prompt]
    assert way.reports() == []
    way.answer(1, "secret")
    assert made[0].answers == [(1, "secret")]
    channel.close()
    assert made[0].closed


@pytest.mark.parametrize(("kind", "final"), [("unreachable", False), ("lost", False), ("denied", True)])
def test_what_will_not_change_by_itself_is_final(made: list[PlayedConnection], kind: FailureKind, final: bool) -> None:
    failure = ConnectionFailure(kind=kind, host="forge", detail="why")
    way = route(made, raises=ConnectionFailed(failure))
    with pytest.raises(CannotReach) as caught:
        way.open()
    assert caught.value.final is final
    assert "forge" in str(caught.value)
    assert way.failure == failure
    assert made[0].closed


def test_it_can_be_given_up(made: list[PlayedConnection]) -> None:
    way = route(made, raises=Cancelled("cancelled"))
    way.cancel()  # nothing waits
    with pytest.raises(CannotReach, match="given up"):
        way.open()
    way.cancel()
    assert made[0].cancelled
