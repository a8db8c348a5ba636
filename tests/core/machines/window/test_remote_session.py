"""A session over a link: what a window sees of another machine, and what a broken connection costs it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.far import RouteHere, both_until
from fakes.hosts import READY, HostHere, WindowHere

from devexplorer.core.base import BadInput
from devexplorer.core.engine.link import LONGEST_LIST
from devexplorer.core.machines.records import (
    Chunk,
    Control,
    Done,
    ListFolder,
    PastReadings,
    ReadFile,
    Reply,
    RestartEngine,
    SetHidden,
    SnapshotBegin,
    SnapshotEnd,
    Text,
    WriteScript,
)
from devexplorer.core.machines.window.link import CannotReach
from devexplorer.core.machines.window.machines import FarHistory
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.machines.window.uplink import PROVED_S, RETRY_S
from devexplorer.core.records import (
    Answer,
    BuildModel,
    DeviceSample,
    Event,
    JobEnded,
    JobStarted,
    Log,
    NewTensor,
    ObjectChanged,
    ObjectSnapshot,
    Row,
)
from devexplorer.core.records.base import Record
from devexplorer.core.session import State
from devexplorer.core.session.journal import Action
from devexplorer.core.session.poll import fill
from devexplorer.core.session.session import Session


class Far:
    """A host, and the window's session with it; `state` is what the window knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = HostHere(folder)
        self.host.say(READY)
        self.route = RouteHere(self.host)
        self.now, self.unix_s = 50.0, 1000.0
        self.session = RemoteSession("forge", self.route, clock=lambda: self.unix_s, monotonic=lambda: self.now)
        self.state = State()
        self.events: list[Event] = []

    def beat(self) -> None:
        """What the heartbeat does."""
        self.session.beat()
        result = self.session.drain()
        if result.state is not None:
            result.state.go_on_from(self.state)
            self.state.exchange(result.state)
        if result.catalog is not None:
            self.state.set_catalog(result.catalog)
        for past in result.past:
            fill(self.state, past)
        for event in result.events:
            self.events.append(event)
            self.state.apply(event)
        self.state.away = result.away

    def until(self, happened: Callable[[], object]) -> None:
        both_until(self.host, self.beat, happened)

    def connect(self) -> None:
        self.session.start()
        self.until(lambda: self.state.engine is not None and not self.state.away)

    def cut(self) -> None:
        """The connection breaks, and both notice."""
        was_free = self.route.free.is_set()
        self.route.free.clear()
        self.route.link.cut()
        self.until(lambda: self.session.link.state != "connected" and not self.host.server.connected)
        if was_free:
            self.route.free.set()

    def texts(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Log)]

    def another_host(self) -> None:
        """The daemon has died, and another one is started."""
        before, self.host = self.host, HostHere(self.folder)
        self.host.say(READY)
        self.route.host = self.host
        before.close()

    def close(self) -> None:
        self.until(lambda: self.session.link.state not in ("connecting", "reconnecting"))
        assert self.session.close(10.0)
        self.host.close()
        self.route.close()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    made = Far(tmp_path)
    yield made
    made.close()


def log(text: str, time_unix_s: float = 1000.0) -> Log:
    return Log(level="info", text=text, time_unix_s=time_unix_s)


def tensor(name: str, rows: tuple[Row, ...] = ()) -> ObjectChanged:
    snapshot = ObjectSnapshot(
        name=name, kind="tensor", type="Tensor", rows=rows, bytes_by_device={}, tensors_by_device={}
    )
    return ObjectChanged(snapshot=snapshot)


def test_what_is_there_is_known_and_commands_are_carried_out_there(far: Far) -> None:
    far.host.say(tensor("a"), log("before"))
    far.connect()
    assert list(far.state.objects) == ["a"]
    assert [line.text for line in far.state.log] == ["before"]
    request = far.session.send(BuildModel(recipe="mlp"))
    far.until(lambda: far.host.engine.sent)
    assert far.host.engine.sent == [BuildModel(recipe="mlp", request=request)]
    far.host.say(JobStarted(request=request, title="Build mlp", time_unix_s=1.0), tensor("b"))
    far.until(lambda: "b" in far.state.objects)
    assert list(far.state.jobs) == [request]
    far.host.say(
        Answer(request=request, title="mlp was built", words="", code="mlp = build()", time_unix_s=1.0),
        JobEnded(request=request, ok=True, time_unix_s=2.0),
    )
    far.until(lambda: not far.state.jobs)
    assert "# mlp was built\nmlp = build()" in far.session.listener("files").script()
    link = far.session.link
    assert (link.state, link.holder, link.machine) == ("connected", None, far.host.server.machine)


def test_after_a_break_it_is_connected_again_at_once_with_what_there_is_now(far: Far) -> None:
    far.connect()
    far.host.say(log("before", 999.0))
    far.until(lambda: len(far.state.log) == 1)
    far.cut()
    assert far.session.link.state == "reconnecting"
    assert "reconnected; wait" in far.state.away
    far.host.say(log("meanwhile"), tensor("a"))
    far.until(lambda: "a" in far.state.objects and not far.state.away)
    assert [line.text for line in far.state.log] == ["before", "meanwhile"]
    assert far.route.attempts == 2


def test_of_commands_that_end_during_a_break_the_last_answer_is_known(far: Far) -> None:
    far.connect()
    first, second, third = (far.session.send(BuildModel(recipe=name)) for name in ("mlp", "lenet", "gpt"))
    came: list[object] = []
    failed: list[str] = []
    far.until(lambda: len(far.host.engine.sent) == 3)
    far.cut()
    far.session.ask(WriteScript(), came.append, failed.append)
    far.session.ask(RestartEngine(), came.append, failed.append)
    for request in (first, second):
        far.host.say(
            JobStarted(request=request, title="build", time_unix_s=1.0, command=BuildModel(recipe="mlp")),
            Answer(request=request, title="built", words=f"{request}", time_unix_s=1.0),
            JobEnded(request=request, ok=True, time_unix_s=2.0),
        )
    far.until(lambda: came and failed and len(far.state.done) == 2)
    assert isinstance(came[0], Text)
    assert failed == ["The connection to forge broke before it had answered."]
    assert [done.ok for done in far.state.done] == [False, True]
    far.until(far.texts)
    assert far.texts() == ["The connection to forge was broken; perhaps not carried out: building mlp."]
    assert [far.session.is_running(request) for request in (first, second, third)] == [False, False, True]
    far.host.say(JobEnded(request=third, ok=True, time_unix_s=2.0))
    far.until(lambda: not far.session.is_running(third))


def test_attempts_become_rarer_and_the_user_can_ask_for_one(far: Far) -> None:
    far.connect()
    far.now += PROVED_S + 1
    far.route.refuse = CannotReach("no route to host")
    far.cut()
    pauses = []
    for _ in range(len(RETRY_S) + 1):
        attempts = far.route.attempts
        far.until(lambda: (far.session.link.retry_in_s or 0.0) > 0)
        pauses.append(far.session.link.retry_in_s)
        assert far.session.link.reason == "no route to host"
        assert far.route.attempts <= attempts + 1
        far.now += far.session.link.retry_in_s or 0.0
    assert pauses == [*RETRY_S[1:], 30.0, 30.0]
    far.until(lambda: far.session.link.retry_in_s)
    far.route.refuse = None
    far.session.reconnect()
    far.until(lambda: far.session.link.state == "connected")


def test_a_machine_that_was_never_reached_is_not_tried_again(far: Far) -> None:
    far.route.refuse = CannotReach("Permission denied")
    far.session.start()
    far.until(lambda: far.session.link.state == "lost")
    assert far.state.away == "There is no connection to forge: Permission denied."
    assert far.session.send(BuildModel(recipe="mlp")) == 0
    failed: list[str] = []
    far.session.ask(ListFolder(), lambda _: None, failed.append)
    assert failed == [far.state.away]
    far.route.refuse = None
    far.session.reconnect()
    far.until(lambda: far.state.engine is not None)
    assert [event.title for event in far.events if isinstance(event, Answer)] == ["That cannot be sent"]


def test_an_attempt_can_be_given_up(far: Far) -> None:
    far.route.free.clear()
    far.session.start()
    far.until(lambda: far.route.attempts)
    far.session.disconnect()
    assert (far.session.link.state, far.session.link.reason) == ("lost", "you disconnected")


def test_a_host_that_was_started_anew_is_said_in_one_line_and_curves_go_on(far: Far) -> None:
    far.connect()
    far.host.say(tensor("a"))
    request = far.session.send(NewTensor(name="b"))
    far.until(lambda: far.host.engine.sent)
    far.host.say(
        Answer(request=request, title="b is there", words="", code="b = 1", time_unix_s=1.0),
        JobEnded(request=request, ok=True, time_unix_s=2.0),
        DeviceSample(device="cpu", time_unix_s=1000.0, utilization_percent=5.0),
        log("old", 999.0),
    )
    far.session.send(BuildModel(recipe="mlp"))
    far.until(lambda: far.session.actions and far.state.log and len(far.state.devices["cpu"].history))
    failed: list[str] = []
    far.route.free.clear()
    far.cut()
    far.session.ask(RestartEngine(), lambda _: None, failed.append)
    far.another_host()
    far.route.free.set()
    far.until(lambda: len(far.state.log) == 2 and not far.state.objects)  # the snapshot follows the line
    assert [line.text for line in far.state.log][:1] == ["old"]
    assert far.state.log[-1].text == (
        "The host on forge stopped and was restarted: 1 action and all objects were lost. If a copy"
        " exists, the inspector offers it. Interrupted: building mlp."
    )
    assert len(far.state.devices["cpu"].history) == 1
    assert failed == ["The connection to forge broke before it had answered."]


def test_a_host_that_ends_says_why_and_is_not_started_again(far: Far) -> None:
    far.connect()
    failed: list[str] = []
    far.host.server.end("nobody needs it")
    far.session.ask(WriteScript(), lambda _: None, failed.append)
    far.until(lambda: far.session.link.state == "lost")
    far.until(lambda: failed)
    assert failed == ["There is no connection to forge: nobody needs it."], "nobody waits for an answer"
    assert far.session.link.reason == "nobody needs it"
    assert far.route.attempts == 1


def test_a_session_of_many_actions_arrives_whole(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a snapshot, as news, and when many are undone."""
    made = [Action(f"step {number}", "", "x = 1", float(number)) for number in range(2 * LONGEST_LIST + 1_500)]
    done = made[: LONGEST_LIST + 500]
    monkeypatch.setattr(Session, "actions", property(lambda _: tuple(done)))
    far.host.say(JobEnded(request=1, ok=True, time_unix_s=1.0))
    far.connect()
    assert list(far.session.actions) == done
    for count in (len(made), 2_000, 0):
        done[:] = made[:count]
        far.host.say(JobEnded(request=2, ok=True, time_unix_s=2.0))
        far.until(lambda: len(far.session.actions) == len(done))
        assert list(far.session.actions) == done


def test_times_of_the_other_clock_are_those_of_this_one(far: Far) -> None:
    far.host.now = 5000.0
    far.connect()
    far.host.say(log("now there", 5000.0), DeviceSample(device="cpu", time_unix_s=5001.0, utilization_percent=5.0))
    far.until(lambda: far.state.log and far.state.devices["cpu"].sample)
    assert far.state.log[-1].time_unix_s == 1000.0
    sample = far.state.devices["cpu"].sample
    assert sample is not None
    assert sample.time_unix_s == 1001.0


def test_what_a_host_says_is_not_trusted(far: Far) -> None:
    far.connect()
    row = Row(path="a\x1b[2J", name="a\u202eb", kind="module", type="T", depth=0)
    far.host.say(log("\x1b[31mred\x07\ttab\nline"), tensor("a\x9b", (row,)), log("still here"))
    far.until(lambda: "still here" in far.texts())
    assert far.texts()[0] == "␛[31mred␇\ttab\nline"
    (snapshot,) = far.state.objects.values()
    assert (snapshot.name, snapshot.rows[0].path, snapshot.rows[0].name) == ("a⟨U+009B⟩", "a␛[2J", "a⟨U+202E⟩b")
    far.host.say(DeviceSample(device="cpu", time_unix_s=1.0, power_w=math.nan), log("and here"))
    far.until(lambda: "and here" in far.texts())
    assert any("a DeviceSample was refused" in text for text in far.texts())


def test_an_answer_to_another_question_is_one_line(far: Far) -> None:
    far.connect()
    came: list[object] = []
    failed: list[str] = []
    kinds = (ReadFile(path="x"), ListFolder(), WriteScript(), SetHidden(hidden=True))
    wrong = iter((Done(words="no"), Chunk(data=b"", size_bytes=0), Done(), Text(text="what")))
    for question in kinds:
        far.session.ask(question, came.append, failed.append)
        far.session._replied(Reply(to=far.session._asked, result=next(wrong)))
    assert not came
    assert [words.rpartition(" ")[2] for words in failed] == ["Done.", "Chunk.", "Done.", "Text."]
    assert all(words.startswith(f"{far.session.name} gave an answer to another question") for words in failed)


def test_a_record_that_is_not_understood_does_not_come_again_and_again(far: Far) -> None:
    class Newer(Record, tag="Newer"):
        """Of a host that knows more."""

    far.connect()
    (client,) = far.host.server.connected
    client.tell(Newer())
    far.until(lambda: far.route.attempts == 2 and not far.state.away)
    far.host.say(log("after"))
    far.until(lambda: "after" in far.texts())
    assert far.route.attempts == 2


def test_a_link_that_is_dead_for_a_minute_is_replaced(far: Far) -> None:
    far.route._link = {"bytes_per_s": 250_000.0, "delay_s": 0.01}  # 2 Mbit/s
    far.connect()
    rows = tuple(Row(path=f"{i}", name=f"{i}", kind="module", type="Linear", depth=1) for i in range(3000))
    far.host.say(tensor("x", rows))
    far.until(lambda: "x" in far.state.objects)
    far.route.link.open.clear()
    far.session.send(NewTensor(name="y"))
    far.host.say(*(log(f"line {index}") for index in range(50)))
    far.now += 1
    far.beat()
    assert far.session.link.state == "connected"
    far.now += 60
    far.until(lambda: len(far.route.links) == 2 and len(far.state.log) > 50)
    assert len(far.state.objects["x"].rows) == 3000
    assert not far.host.engine.sent
    assert far.texts()[-1] == "The connection to forge was broken; perhaps not carried out: creating y."


def test_readings_have_an_age_and_time_stands_still_without_them(far: Far) -> None:
    far.connect()
    far.host.say(DeviceSample(device="cpu", time_unix_s=1000.0))
    far.until(lambda: far.session.link.reading_age_s == 0.0)
    assert far.session.now() == 1000.0
    far.now, far.unix_s = far.now + 4, far.unix_s + 4
    assert (far.session.link.reading_age_s, far.session.now()) == (4.0, 1004.0)
    far.route.refuse = CannotReach("gone")
    far.now, far.unix_s = far.now + 8, far.unix_s + 8
    assert far.session.is_late
    assert far.session.now() == 1000.0


def test_one_window_controls_and_the_other_can_take_over(far: Far) -> None:
    other = WindowHere(far.host, "bob@desk")
    other.connect()
    other.wait_for(Control)
    far.session.start()
    far.until(lambda: far.session.link.holder == "bob@desk" and far.state.devices)
    assert far.state.away == "bob@desk controls forge; this window watches."
    other.cut()
    far.until(lambda: far.session.link.holder_away and far.session.link.watching)
    assert far.session.why_not() == "bob@desk controls forge but is not connected; this window watches."
    far.session.restart_engine()
    far.until(lambda: far.state.answer is not None and far.state.answer.title == "The engine was not restarted")
    far.session.take_over()
    far.until(lambda: not far.session.link.watching)
    far.session.send(BuildModel(recipe="mlp"))
    far.until(lambda: far.host.engine.sent)
    other.close()


def test_what_is_asked_is_answered_at_a_beat(far: Far) -> None:
    far.connect()
    texts: list[str] = []
    refused: list[str] = []

    def came(answer: Text) -> None:
        texts.append(answer.text)

    far.session.ask(WriteScript(), came)
    far.session.ask(ListFolder(path="/no/such folder"), lambda _: None, refused.append)
    far.until(lambda: texts and refused)
    assert texts[0].startswith('"""A session of DevExplorer')
    lines = far.session.listener("files").script().splitlines()
    assert lines[0] == "# -*- coding: utf-8 -*-"
    assert lines[1].startswith(f"# This came from {far.session.name} and was not checked")
    assert "no/such folder" in refused[0]
    with pytest.raises(BadInput):
        far.session.set_visible_devices("one")
    far.session.set_visible_devices("0")
    far.until(lambda: far.session.visible_devices == "0")


def test_the_history_there_has_the_same_interface(far: Far, tmp_path: Path) -> None:
    pytest.importorskip("devexplorer.core.history")
    far.connect()
    history = FarHistory(far.session)
    shown: list[int] = []
    said: list[tuple[str, bool]] = []
    history.request(None, "", 10, lambda runs, count: shown.append(count))
    history.delete([7], lambda words, failed: said.append((words, failed)))
    history.import_file(tmp_path / "none.json", lambda words, failed: said.append((words, failed)))
    far.until(lambda: shown and len(said) == 2)
    assert shown == [0]
    assert said[0] == ("0 runs deleted from the history.", False)
    assert said[1][1]


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_breaks_whenever_no_command_is_carried_out_twice_and_each_has_an_end(far: Far, seed: int) -> None:
    chance, sent = random.Random(seed), dict[str, int]()
    far.connect()
    for _ in range(20):
        for _ in range(chance.randrange(1, 30)):
            if chance.random() < 0.4 and not far.session.why_not():
                recipe = str(len(sent))
                sent[recipe] = far.session.send(BuildModel(recipe=recipe))
            else:
                far.beat()
                far.host.server.tick()
        if far.session.link.state == "connected":
            links = len(far.route.links)
            far.now += PROVED_S + 1
            far.route.link.cut()
            far.until(lambda links=links: len(far.route.links) > links)  # type: ignore[misc]
    far.until(lambda: not far.session.why_not())
    for command in far.host.engine.sent:
        far.host.say(JobEnded(request=command.request, ok=True, time_unix_s=2.0))
    far.until(lambda: not any(far.session.is_running(request) for request in sent.values()))
    carried_out = [command.request for command in far.host.engine.sent]
    assert carried_out == sorted(set(carried_out) & set(sent.values()))


def test_a_past_that_cannot_be_shown_is_refused(far: Far) -> None:
    far.connect()
    wrong = PastReadings(device="cpu", start_unix_s=1000.0, after_s=b"123", metrics=("tflops",), values=b"")
    unknown = PastReadings(device="gone", start_unix_s=1.0, after_s=bytes(4), metrics=("x\x1b",), values=bytes(4))
    for client in far.host.server.connected:
        for record in (wrong, unknown):
            client.tell(record)
        client.tell(SnapshotBegin())
        client.tell(far.host.server.known.devices())
        client.tell(SnapshotEnd())
    far.until(far.texts)
    assert far.texts() == ["forge: past readings were refused: their sizes do not fit"]
    assert not len(far.state.devices["cpu"].history)
