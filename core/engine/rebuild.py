"""Makes the workspace again in a new engine: sends what the journal says, keeps what came back and what did not, and why. Main thread.

A new engine can have other devices than the one before (another CUDA_VISIBLE_DEVICES, a card that is lost), so that moves fail on the
way back. An Undo of such a move is left out: it would undo another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from devexplorer.core.engine.journal import Journal
from devexplorer.core.records.messages import Combine, Command, Move, NewTensor, Rebuilt, Remove, StartBenchmark, Undo


class Rebuild:
    """`begin` after each start of an engine, then tell it how each request ended; `send` returns the number of the request."""

    def __init__(self, journal: Journal, send: Callable[[Command], int]) -> None:
        self._journal = journal
        self._send = send
        self._waiting: deque[Command] = deque()
        self._sent: dict[int, Command] = {}
        self._undone_last: list[tuple[int, tuple[str, ...]]] = []
        """Moves that Undo would undo, the newest last: their requests, and the objects that were moved."""
        self._without_effect: set[int] = set()
        self._words: dict[int, str] = {}
        self._failed: list[tuple[Command, str]] = []
        self._culprits: list[str] = []
        self._restored: list[str] = []

    def begin(self) -> bool:
        """Send the journal's commands; False when there is nothing to do."""
        self._waiting = deque(self._journal.replay())
        self._restored, self._failed, self._undone_last = [], [], []
        self._feed()
        return self.running

    @property
    def running(self) -> bool:
        """Whether something is still being made."""
        return bool(self._sent or self._waiting)

    def owns(self, request: int) -> bool:
        """Whether a request is one of its own."""
        return request in self._sent

    def refused(self, request: int, words: str) -> None:
        """The engine's words about a request that failed."""
        self._words[request] = words

    def had_no_effect(self, request: int) -> None:
        """A move to where things were already: Undo knows nothing of it."""
        self._without_effect.add(request)

    def ended(self, request: int, *, ok: bool, created: str | None) -> None:
        """A request of its own is over; `created` is the object that it made."""
        command = self._sent.pop(request)
        if ok and created is not None and created not in self._restored:
            self._restored.append(created)
        if not ok:
            self._without_effect.add(request)
            self._failed.append((command, self._words.get(request, "it failed this time")))
        self._feed()

    def interrupted(self) -> None:
        """The engine was ended on purpose: nobody is to blame, everything is made again in the next one."""
        for memory in (self._waiting, self._sent, self._words, self._without_effect):
            memory.clear()

    def died(self) -> str | None:
        """The engine is gone. Returns what it was at, which is left out from now on; None when nothing was under way."""
        culprit = next(iter(self._sent.values()), None)
        self.interrupted()
        if culprit is None:
            return None
        self._culprits.append(describe(culprit))
        self._journal.forget([culprit])
        return describe(culprit)

    def result(self) -> Rebuilt:
        """What came back and what did not, once nothing is running."""
        lost = [
            *self._journal.lost(),
            *(f"{describe(command)}: {words}" for command, words in self._failed),
            *(f"{words}: it ends the engine" for words in self._culprits),
        ]
        self._journal.forget([command for command, _ in self._failed])
        self._journal.rebuilt()
        self._culprits.clear()
        return Rebuilt(restored=tuple(self._restored), lost=tuple(lost))

    def _feed(self) -> None:
        """Send everything up to the next Undo, which needs to know how the moves before it ended."""
        while self._waiting:
            command = self._waiting[0]
            if isinstance(command, Undo):
                if self._sent:
                    return
                undone = self._undone_last.pop()[0] if self._undone_last else None
                if undone in self._without_effect:
                    self._journal.forget([self._waiting.popleft()])
                    continue
            self._waiting.popleft()
            request = self._send(command)
            self._sent[request] = command
            if isinstance(command, Move):
                self._undone_last.append((request, tuple(target.partition(":")[0] for target in command.targets)))
            elif isinstance(command, Remove):
                gone = set(command.names)
                self._undone_last = [(move, names) for move, names in self._undone_last if not gone.issuperset(names)]


def describe(command: Command) -> str:
    """A command in a few words."""
    match command:
        case StartBenchmark(spec=spec):
            return f"benchmark on {spec.device}"
        case NewTensor(name=name) | Combine(name=name):
            return f"new tensor {name or ''}".rstrip()
        case Move(targets=targets, device=device):
            return f"move {', '.join(targets)} to {device}"
    subject = getattr(command, "target", None) or getattr(command, "recipe", None) or ", ".join(getattr(command, "targets", ()))
    return f"{type(command).__name__.lower()} {subject}".rstrip()
