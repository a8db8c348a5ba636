"""A session at the far end of a link, with what the window needs of `core.session.session.Session`. Main thread only,
and no method waits.

What happens there comes as the same events. The window keeps what it was told last while there is no connection, and
`now` stands still, so that nothing visible looks as if it were of this moment.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import PurePath, PurePosixPath
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from devexplorer.core.base import Clock, count_text, sentence
from devexplorer.core.commands.registry import spec_of, title_of
from devexplorer.core.devices.cuda_visible_devices import checked
from devexplorer.core.engine.link import frame
from devexplorer.core.files.script import marked, script
from devexplorer.core.machines.host.wire import Wire
from devexplorer.core.machines.records import (
    ANSWERED_WITH,
    Do,
    Done,
    FindModels,
    FindPythons,
    ForgetCopy,
    HistoryChanged,
    HostQuestion,
    ListFolder,
    ListRuns,
    ListScripts,
    ProbePython,
    Question,
    ReadFile,
    RecogniseFiles,
    Reply,
    RestartEngine,
    Result,
    SetHidden,
    SetPython,
    SetVisibleDevices,
    StartRecording,
    StopRecording,
    TakeOver,
    WriteScript,
)
from devexplorer.core.machines.window.link import Link, Route
from devexplorer.core.machines.window.uplink import Uplink, visible
from devexplorer.core.records import (
    Answer,
    BeginBenchmark,
    Command,
    EngineReady,
    Event,
    JobEnded,
    JobStarted,
    Log,
    Move,
)
from devexplorer.core.records.base import Record
from devexplorer.core.session.journal import Action, Surroundings
from devexplorer.core.session.poll import MOST_EVENTS, Past, PollResult
from devexplorer.core.session.state import State

R = TypeVar("R", bound=Result)
MOST_PAST = 2
"""Curves in one beat: ten milliseconds each."""
LATE_S = 5.0
"""Readings that are older than this are not of this moment any more, whatever the link says."""


class FarRecording(NamedTuple):
    """What is being recorded there."""

    path: PurePath
    """On that machine."""
    started_unix_s: float
    bytes_written: int | None = None
    problem: str | None = None


AGAIN = (
    ListFolder, RecogniseFiles, FindModels, ReadFile, ListRuns, FindPythons, ProbePython, ListScripts, WriteScript,
    ForgetCopy, SetHidden,
)  # fmt: skip
"""Questions that are asked again after a break: it is the same whether they were answered before."""


class _Asked(NamedTuple):
    """A question, and who gets the answer, or why there is none."""

    question: Question
    then: Callable[[Any], None]
    failed: Callable[[str], None]


class RemoteSession:
    """`start`, then `send`, `ask` and `drain`, `beat` often; `close` at the end."""

    def __init__(
        self,
        name: str,
        route: Route,
        *,
        client: str = "",
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        """`name`: of the machine, as sentences have it. `client`: of this window, which keeps control under it."""
        self.name = name
        self._clock, self._monotonic = clock, monotonic
        self._uplink = Uplink(name, route, client=client, clock=clock, monotonic=monotonic)
        self._incoming = self._uplink.incoming
        self._arrived: deque[Event] = deque()
        self._past: deque[Past] = deque()
        self._requests = 0
        self._wire: Wire | None = None
        """The connection on which everything that is not answered was said; None: there is none."""
        self._host = ""
        """The run of the host that was connected last."""
        self._running: dict[int, Command] = {}
        """Commands of this window that have not ended."""
        self._questions: dict[int, _Asked] = {}
        """That are not answered."""
        self._asked = 0
        self._hidden = False
        self._engine: EngineReady | None = None
        self._known_actions = 0
        self.listeners: dict[str, Any] = {"recording": self, "files": self}
        self.on_history: Callable[[HistoryChanged], None] = lambda changed: None
        """Told when the runs of that machine's history are others."""
        self.on_drained: Callable[[PollResult], None] | None = None
        """Told what each `drain` hands out: a fleet's check listens while it measures there."""

    # --- the link

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._uplink.start()

    def beat(self) -> None:
        """Called at each beat of the window."""
        self._uplink.beat()
        before, self._wire = self._wire, self._uplink.wire
        if self._wire is not None and self._wire is not before:
            self._connected()
        if self._questions and self._uplink.state == "lost":  # nobody will answer
            questions, self._questions = self._questions, {}
            for asked in questions.values():
                asked.failed(self.why_not())

    @property
    def link(self) -> Link:
        """How the way there stands."""
        up, here = self._uplink, self._incoming
        wire = up.wire
        came, went = up.rates
        control = here.control
        watches = control is not None and not control.granted and not self._read_only
        return Link(
            state=up.state,
            since_unix_s=up.since_unix_s,
            reason=visible(up.reason),
            ended=up.ended,
            retry_in_s=up.retry_in_s,
            holder=visible(control.holder) if watches and control is not None else None,
            holder_away=control is not None and control.away,
            latency_s=None if wire is None else wire.latency_s,
            received_bytes_s=came,
            sent_bytes_s=went,
            dropped=here.dropped + (0 if wire is None else wire.dropped_there),
            reading_age_s=None if here.read_s is None else self._monotonic() - here.read_s,
            machine=visible(up.hello.machine),
            devexplorer=visible(up.hello.devexplorer),
            python="" if here.engine is None else here.engine.python,
        )

    @property
    def knows_control(self) -> bool:
        """Whether the host has said who controls it."""
        return self._incoming.control is not None

    def is_running(self, request: int) -> bool:
        """Whether a command of this window has not ended, as far as is known."""
        return request in self._running

    def now(self) -> float:
        """By this window's clock; stands still while nothing comes."""
        return self._incoming.heard_unix_s if self.is_late else self._clock()

    @property
    def is_late(self) -> bool:
        """Whether what is known is not of this moment."""
        late = self._clock() - self._incoming.heard_unix_s > LATE_S
        return late or self._uplink.state != "connected"

    def reconnect(self) -> None:
        """Try to connect now."""
        self._uplink.reconnect()

    def disconnect(self) -> None:
        """End the connection; what runs there goes on."""
        self._uplink.disconnect("you disconnected")

    def take_over(self) -> None:
        """This window wants to control that machine."""
        self._put(TakeOver())

    def close(self, deadline_s: float = 2.5) -> bool:
        """End the connection for good; False when a thread still runs at the deadline."""
        return self._uplink.close(deadline_s)

    @property
    def _read_only(self) -> str:
        return "" if self._engine is None else self._engine.read_only

    def why_not(self, *, changes: bool = True) -> str:
        """Why nothing can be changed there now, or (not `changes`) asked of the host, one sentence; empty: it can."""
        state, control = self._uplink.state, self._incoming.control
        if self._uplink.ended:
            return visible(self._uplink.reason)
        if state == "lost":
            return sentence(f"There is no connection to {self.name}: {visible(self._uplink.reason)}")
        if state != "connected":
            return f"{self.name} is being {'connected to' if state == 'connecting' else 'reconnected'}; wait a moment."
        if control is None:
            return f"{self.name} has not said yet what it is doing; wait a moment."
        if self._read_only:
            return sentence(self._read_only) if changes else ""
        if not control.granted:
            return self.link.watching_words(self.name)
        return ""

    # --- as any session

    def send(self, command: Command) -> int:
        """Have a command carried out there; returns the request number that its events will carry."""
        moves = isinstance(command, Move) and self._engine is not None and self._engine.moves
        changes = not spec_of(command).looks and not moves
        why_not, control = self.why_not(changes=changes), self._incoming.control
        if why_not or control is None:
            self._say("That cannot be sent", why_not)
            return 0
        self._requests += 1
        request = control.generation << 32 | self._requests
        numbered: Command = msgspec.structs.replace(command, request=request)
        if isinstance(numbered, BeginBenchmark):
            at_unix_s = numbered.at_unix_s + self._incoming.ahead_s
            numbered = msgspec.structs.replace(numbered, at_unix_s=at_unix_s)
        self._running[request] = numbered
        self._put(Do(command=numbered))
        return request

    def put(self, event: Event) -> None:
        """Add an event of the window itself. Any thread."""
        self._incoming.put(event)

    def drain(self) -> PollResult:
        """What came since the last call, in order; after a flood the rest comes with the next calls."""
        news = self._incoming.news()
        if news.state is not None:
            self._arrived.clear()
            self._past.clear()
        self._past.extend(news.past)
        self._arrived.extend(news.events)
        if news.state is not None:
            self._compare(news.state, news.running)
        for reply in news.replies:
            self._replied(reply)
        if news.history is not None:
            self.on_history(news.history)
        past = tuple(self._past.popleft() for _ in range(min(len(self._past), MOST_PAST)))
        most = 0 if self._past else MOST_EVENTS  # what is read now comes behind it
        events = [self._arrived.popleft() for _ in range(min(len(self._arrived), most))]
        for event in events:
            if isinstance(event, JobEnded):
                self._running.pop(event.request, None)
            elif isinstance(event, EngineReady):
                self._engine = event
        if news.state is not None and news.state.engine is not None:
            self._engine = news.state.engine
        self._known_actions = len(self._incoming.actions)
        more = bool(self._past or self._arrived)
        result = PollResult(events, news.catalog, news.state, continues=True, away=self.why_not(), past=past, more=more)
        if self.on_drained is not None:
            self.on_drained(result)
        return result

    def _connected(self) -> None:
        """A connection was made: questions are asked again where they may be."""
        host, before = self._uplink.hello.session, self._host
        if before not in ("", host):
            self._restarted()
        self._host = host
        questions, self._questions = self._questions, {}
        for number, asked in questions.items():
            if isinstance(asked.question, AGAIN):
                self._questions[number] = asked
                self._put(HostQuestion(id=number, question=asked.question))
            else:
                asked.failed(f"The connection to {self.name} broke before it had answered.")
        if self._hidden:
            self.ask(SetHidden(hidden=True), lambda _: None)

    def _restarted(self) -> None:
        """The host of before is gone, with all it had."""
        running, self._running = self._running, {}
        for request in running:
            self.put(JobEnded(request=request, ok=False, time_unix_s=self._clock()))
        if not self._known_actions and not running:
            self._log("warning", f"The host on {self.name} stopped and was restarted.")
            return
        lost = f"{count_text(self._known_actions, 'action')} and all objects were lost"
        words = f"The host on {self.name} stopped and was restarted: {lost}. If a copy exists, the inspector offers it."
        titles = ", ".join(map(title_of, running.values()))
        self._log("error", f"{words} Interrupted: {titles}." if running else words)

    def _compare(self, state: State, running: tuple[int, ...]) -> None:
        """Of commands that were sent before the snapshot, and are not under way, at most the last answer is known."""
        control, now, unknown = self._incoming.control, self._clock(), []
        generation = 0 if control is None else control.generation
        for request, command in self._running.items():
            if request in running or request >> 32 == generation:
                continue
            self.put(JobStarted(request=request, title=title_of(command), time_unix_s=now, command=command))
            answer = state.answer
            if answer is not None and answer.request == request:
                self.put(answer)
                ok = not answer.failed
            else:
                unknown.append(title_of(command))
                ok = False
            self.put(JobEnded(request=request, ok=ok, time_unix_s=now))
        if unknown:
            words = f"The connection to {self.name} was broken; perhaps not carried out: {', '.join(unknown)}."
            self._log("error", words)

    def _log(self, level: Literal["info", "warning", "error"], words: str) -> None:
        self.put(Log(level=level, text=words, time_unix_s=self._clock()))

    def _put(self, record: Record) -> None:
        """Say it, if there is a connection."""
        if self._wire is not None:
            self._wire.put(frame(record))

    def restart_engine(self) -> None:
        """End the engine there, even one that hangs, and start another."""
        self._order(RestartEngine(), "The engine was not restarted")

    @property
    def visible_devices(self) -> str | None:
        """The CUDA_VISIBLE_DEVICES that was chosen for the engine there; None: as inherited."""
        engine = self._incoming.engine
        return None if engine is None else engine.visible_devices

    def set_visible_devices(self, value: str | None) -> None:
        """Start another engine there with this CUDA_VISIBLE_DEVICES. Raises `BadInput` for an invalid list."""
        value = None if value is None else checked(value)
        self._order(SetVisibleDevices(value=value), "The engine was not restarted")

    def set_python(self, python: str) -> None:
        """Start another engine there, in this Python of that machine."""
        self._order(SetPython(path=python), "The engine's Python was not changed")

    def set_hidden(self, hidden: bool) -> None:
        """Nobody looks at this machine now: readings once a second are enough."""
        if hidden != self._hidden:
            self._hidden = hidden
            if self._uplink.state != "lost":
                self.ask(SetHidden(hidden=hidden), lambda _: None)

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions of the session there that were not undone, the oldest first."""
        return tuple(Action(one.title, one.words, one.code, one.time_unix_s) for one in self._incoming.actions)

    def script(self) -> str:
        """They as a Python script, as far as this window knows; `WriteScript` asks for all of it."""
        engine = self._engine
        versions = ("", "") if engine is None else (engine.python_version, engine.torch_version)
        text = script(self.actions, Surroundings(*versions, visible_devices=self.visible_devices))
        return marked(text, self.name)

    def listener(self, feature: str) -> Any:
        """What asks the host for what a feature has there."""
        return self.listeners[feature]

    @property
    def recording(self) -> FarRecording | None:
        """What is being recorded there."""
        now = self._incoming.recording
        return FarRecording(PurePosixPath(now.path), now.started_unix_s) if now.path else None

    def start_recording(self, path: PurePath, *, overwrite: bool = False) -> None:
        """Record on that machine from now on; an answer says why that cannot be."""
        record = StartRecording(path=str(path), overwrite=overwrite)
        self._order(record, "Nothing is recorded", changes=False)

    def stop_recording(self) -> None:
        """End the recording there."""
        self._order(StopRecording(), "The recording goes on", changes=False)

    # --- questions

    def ask(
        self, question: Question, then: Callable[[R], None], failed: Callable[[str], None] = lambda problem: None
    ) -> None:
        """Ask the host; at a later beat `then` gets the result, or `failed` one sentence."""
        if self._uplink.state == "lost":
            failed(self.why_not())
            return
        self._asked += 1
        self._questions[self._asked] = _Asked(question, then, failed)
        self._put(HostQuestion(id=self._asked, question=question))

    def _replied(self, reply: Reply) -> None:
        asked = self._questions.pop(reply.to, None)
        if asked is None:
            return
        kind = ANSWERED_WITH.get(type(asked.question), Done)
        if reply.result is None:
            asked.failed(sentence(reply.problem or f"{self.name} gave no reason"))
        elif type(reply.result) is not kind:
            asked.failed(f"{self.name} gave an answer to another question: a {type(reply.result).__name__}.")
        else:
            asked.then(reply.result)

    def _order(self, question: Question, title: str, *, changes: bool = True) -> None:
        """Ask for something to be done; an answer says why it was not."""

        def done(result: Done) -> None:
            if result.words:
                self._log("info", result.words)

        if why_not := self.why_not(changes=changes):
            self._say(title, why_not)
        else:
            self.ask(question, done, lambda problem: self._say(title, problem))

    def _say(self, title: str, words: str) -> None:
        self.put(Answer(title=title, words=words, failed=True, time_unix_s=self._clock()))
