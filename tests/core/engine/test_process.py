"""The supervisor with small programs as engines: events, refusals, crashes, children that hold the pipes, shutdown."""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.records import AddVirtual, EngineLost, EnginePaused, Event, Log
from devexplorer.core.session import State

START = """
import os, sys, time, struct
from devexplorer.core.engine.link import frame, read_payload, decode_command
from devexplorer.core.records.messages import Log
events = open(int(sys.argv.pop().partition("--events=")[2]), "wb", 0)
def say(text):
    raw(frame(Log(level="info", text=text, time_unix_s=0)))
def raw(data):
    while data: data = data[events.write(data):]
"""
ECHO = (
    START
    + """
while (payload := read_payload(sys.stdin.buffer, 1000)) is not None:
    say(decode_command(payload).spec)
"""
)
Start = Callable[[str], tuple[EngineProcess, "queue.SimpleQueue[Event]"]]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[EngineProcess] = []

    def run(script: str) -> tuple[EngineProcess, queue.SimpleQueue[Event]]:
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        engine = EngineProcess(events.put, command=[sys.executable, "-c", script])
        engine.start()
        running.append(engine)
        return engine, events

    yield run
    for engine in running:
        engine.close()
        assert engine.join(3.0)


def until(events: queue.SimpleQueue[Event], wanted: Callable[[Event], bool]) -> list[Event]:
    """Every event up to the wanted one."""
    seen: list[Event] = []
    while not seen or not wanted(seen[-1]):
        seen.append(events.get(timeout=20))
    return seen


def is_lost(event: Event) -> bool:
    return isinstance(event, EngineLost)


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Log)]


def test_commands_go_in_and_events_come_out(start: Start) -> None:
    engine, events = start(ECHO)
    for spec in ("one", "two"):
        engine.send(AddVirtual(spec=spec))
    assert texts([events.get(timeout=20), events.get(timeout=20)]) == ["one", "two"]


def test_the_end_of_input_ends_it_and_no_loss_is_reported(start: Start) -> None:
    engine, events = start(ECHO)
    engine.send(AddVirtual(spec="up"))
    events.get(timeout=20)
    engine.close()
    assert engine.join(3.0)
    assert events.empty()


def test_a_malformed_frame_is_refused_alone(start: Start) -> None:
    _, events = start(START + "raw(struct.pack('>I', 3) + b'abc'); say('after')\nsys.stdin.read()")
    refused, _ = until(events, lambda event: isinstance(event, Log) and event.text == "after")
    assert isinstance(refused, Log)
    assert "refused" in refused.text


def test_an_event_that_pretends_that_the_engine_ended_is_ignored(start: Start) -> None:
    script = START + "from devexplorer.core.records.messages import EngineLost\n"
    script += (
        "raw(frame(EngineLost(reason='no', will_restart=False, time_unix_s=0))); say('still here')\nsys.stdin.read()"
    )
    _, events = start(script)
    assert texts([events.get(timeout=20)]) == ["still here"]


def test_an_oversized_frame_ends_the_engine_and_says_so(start: Start) -> None:
    _, events = start(START + "raw(b'\\xff' * 100)\ntime.sleep(60)")
    seen = until(events, is_lost)
    assert any("limit" in text for text in texts(seen))


@pytest.mark.parametrize(("death", "words"), [("os._exit(7)", "exit code 7"), ("os.kill(os.getpid(), 9)", "SIGKILL")])
def test_how_it_ended_is_said_after_everything_it_said(start: Start, death: str, words: str) -> None:
    _, events = start(START + f"say('last words')\n{death}")
    last, lost = until(events, is_lost)
    assert texts([last]) == ["last words"]
    assert isinstance(lost, EngineLost)
    assert words in lost.reason


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGSTOP")
def test_an_engine_that_is_stopped_is_not_called_ready(start: Start) -> None:
    engine, events = start(ECHO)
    engine.send(AddVirtual(spec="one"))
    events.get(timeout=20)
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGSTOP)
    assert events.get(timeout=20) == EnginePaused(paused=True)
    state = State()
    state.apply(EnginePaused(paused=True))
    assert "paused" in state.engine_words
    os.kill(engine.pid, signal.SIGCONT)
    assert events.get(timeout=20) == EnginePaused(paused=False)
    state.apply(EnginePaused(paused=False))
    assert "paused" not in state.engine_words
    engine.send(AddVirtual(spec="two"))
    assert texts([events.get(timeout=20)]) == ["two"]


def test_a_forked_child_that_holds_the_pipes_neither_hides_the_death_nor_survives(start: Start) -> None:
    script = START + "child = os.fork()\nif child == 0: time.sleep(60)\nsay(str(child))\nos._exit(1)"
    _, events = start(script)
    seen = until(events, is_lost)
    child = int(texts(seen)[0])
    end = time.monotonic() + 3
    while (
        psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE and time.monotonic() < end
    ):
        time.sleep(0.01)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_one_that_ignores_the_end_of_its_input_is_ended_all_the_same(start: Start) -> None:
    engine, events = start(START + "say('up')\ntime.sleep(60)")
    events.get(timeout=20)
    engine.close()
    assert engine.join(3.0)


def test_one_that_reads_nothing_does_not_hold_up_the_sender(start: Start) -> None:
    engine, events = start(START + "say('up')\ntime.sleep(60)")
    events.get(timeout=20)
    for _ in range(2000):
        engine.send(AddVirtual(spec="x" * 200))  # far more than a pipe holds
    engine.kill()
    until(events, is_lost)


@pytest.mark.parametrize(("value", "arguments"), [(None, []), ("", ["--visible="]), ("-1", ["--visible=-1"])])
def test_a_list_of_visible_devices_is_passed_on_as_it_is(value: str | None, arguments: list[str]) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    script = START + "say(repr(sys.argv[1:]))\nsys.stdin.read()"
    engine = EngineProcess(events.put, command=[sys.executable, "-c", script], visible_devices=value)
    engine.start()
    assert texts([events.get(timeout=20)]) == [repr(arguments)]
    engine.close()
    assert engine.join(3.0)


def test_a_program_that_is_not_there_is_a_loss_with_a_reason() -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = EngineProcess(events.put, command=["/nonexistent/engine"])
    engine.start()
    lost = events.get(timeout=20)
    assert isinstance(lost, EngineLost)
    assert "could not be started" in lost.reason
    assert engine.join(3.0)


@pytest.fixture
def other_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an environment that has everything, and whose start prints something."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = tmp_path / "their env é" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nprintf "\\1\\2\\3 hello"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path / "their env é"


def lost_in(python: Path) -> list[Event]:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = EngineProcess(events.put, virtual_spec="Voodoo", python=str(python))
    engine.start()
    seen = until(events, is_lost)
    assert engine.join(3.0)
    return seen


def test_the_engine_of_another_python_speaks_beside_what_that_python_prints(other_python: Path) -> None:
    *said, lost = lost_in(other_python)
    assert "there is no profile 'Voodoo'" in " ".join(texts(said))
    assert isinstance(lost, EngineLost)
    assert lost.cannot_start
    assert lost.reason.startswith("The engine cannot start: there is no profile 'Voodoo'")


def test_a_python_that_cannot_be_used_is_a_loss_with_the_reason(other_python: Path, tmp_path: Path) -> None:
    (other_python / "bin" / "python").write_text("#!/bin/sh\nexit 3\n")
    (lost,) = lost_in(other_python)
    assert isinstance(lost, EngineLost)
    assert lost.cannot_start
    assert "their env é/bin/python cannot be used: it is not a Python that answers" in lost.reason
    (lost,) = lost_in(tmp_path / "gone")
    assert f"there is no file {tmp_path}/gone" in str(lost)


def test_one_that_is_being_made_ready_can_be_ended(other_python: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    (other_python / "bin" / "python").write_text(f"#!/bin/sh\ntouch '{started}'\nexec sleep 99\n")
    for end in ("kill", "close"):
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        engine = EngineProcess(events.put, python=str(other_python))
        engine.start()
        while not started.exists():
            time.sleep(0.01)
        started.unlink()
        getattr(engine, end)()
        assert engine.join(5.0)
        assert [type(event) for event in drained(events)] == ([EngineLost] if end == "kill" else [])


def drained(events: queue.SimpleQueue[Event]) -> list[Event]:
    return [events.get() for _ in range(events.qsize())]


def test_a_command_that_no_frame_can_hold_is_refused_where_it_is_sent(start: Start) -> None:
    engine, events = start(ECHO)
    for spec in ("\ud800",):
        with pytest.raises(BadInput, match="cannot be sent"):
            engine.send(AddVirtual(spec=spec))
    engine.send(AddVirtual(spec="still alive"))
    assert texts([events.get(timeout=20)]) == ["still alive"]
