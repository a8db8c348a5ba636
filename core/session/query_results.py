"""Diagnoses of models: part of the state. Lives on the main thread; no Qt, no torch."""

from __future__ import annotations

from devexplorer.core.base import EventHandlers, handles, object_name
from devexplorer.core.records import Answer, Check, Checked, Diagnosis, ObjectSnapshot, Row
from devexplorer.core.session.journal import FinishedCommand
from devexplorer.core.session.poll import Change


class QueryResults(EventHandlers):
    """The latest of each kind; `State` is one, and knows the objects that it is about."""

    def __init__(self) -> None:
        self.objects: dict[str, ObjectSnapshot] = {}
        self.diagnoses: dict[str, Diagnosis] = {}
        """The latest diagnosis of each model."""
        self.checked_as: dict[str, ObjectSnapshot | None] = {}
        """The snapshot that each diagnosis is about."""
        self._parts_differ: dict[str, tuple[ObjectSnapshot, ObjectSnapshot, bool]] = {}
        self.check_failures: dict[str, Answer] = {}
        """Why the latest check of a model failed, if it did."""

    def check_is_old(self, name: str) -> bool:
        """Whether the model has other parts than when it was checked; where they are does not matter."""
        then, now = self.checked_as.get(name), self.objects.get(name)
        if then is None or now is None or then is now:
            return False
        known = self._parts_differ.get(name)
        if known is None or known[0] is not then or known[1] is not now:  # a large model takes a while
            known = self._parts_differ[name] = (then, now, _parts(then) != _parts(now))
        return known[2]

    @property
    def diagnoses_that_hold(self) -> dict[str, Diagnosis]:
        """Those of models that are as they were checked."""
        return {name: diagnosis for name, diagnosis in self.diagnoses.items() if not self.check_is_old(name)}

    @handles(Checked)
    def _checked(self, event: Checked) -> Change:
        self.diagnoses[event.target], self.checked_as[event.target] = event.diagnosis, self.objects.get(event.target)
        self.check_failures.pop(event.target, None)  # a quiet check has no other answer
        return Change.LABORATORY

    def check_ended(self, command: Check, done: FinishedCommand) -> None:
        """A check has ended. A cancelled one changes nothing."""
        if done.answer is None or done.cancelled:
            return
        name = object_name(command.target)
        self.check_failures.pop(name, None)
        if done.failed and name in self.objects:
            self.check_failures[name] = done.answer

    def forget(self, name: str) -> None:
        """Drop the results about a removed object."""
        for results in (self.diagnoses, self.checked_as, self.check_failures):
            results.pop(name, None)
        self._parts_differ.pop(name, None)

    def forget_all(self) -> None:
        """Drop all results about objects."""
        for results in (self.diagnoses, self.checked_as, self.check_failures):
            results.clear()
        self._parts_differ.clear()


def _parts(snapshot: ObjectSnapshot) -> list[tuple[object, ...]]:
    """What a model is made of, wherever that is; gradients and what an optimizer keeps come and go with training."""
    return [_part(row) for row in snapshot.rows if row.kind not in ("gradient", "state")]


def _part(row: Row) -> tuple[object, ...]:
    return row.path, row.kind, row.type, row.tied_to, row.registered
