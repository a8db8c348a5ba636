"""What is being worked on: objects and devices, how far it is. Main thread; no Qt, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from devexplorer.core.base import object_name
from devexplorer.core.commands.registry import spec_of, target_device
from devexplorer.core.records import Command, Move, StartBenchmark
from devexplorer.core.session.jobs import steps_of


class Progress(NamedTuple):
    """How far work is."""

    verb: str
    """`moving`."""
    done: float | None
    """0 to 1; None: not known."""
    title: str
    """`moving mlp to vgpu:1`."""
    part: str = ""
    """Path of what is being worked on, inside the object; empty: the object itself, or not known."""

    @property
    def words(self) -> str:
        """`moving 42 %`, or `moving`."""
        return self.verb if self.done is None else f"{self.verb} {100 * self.done:.0f} %"


class UnderWay(NamedTuple):
    """Long work at what it concerns."""

    objects: Mapping[str, Progress]
    """By the name of the object."""
    devices: Mapping[str, Progress]


NOTHING_UNDER_WAY = UnderWay({}, {})


def verb_of(command: Command) -> str:
    """What is done to the objects of a command, in one word."""
    verbs = [spec_of(step).verb for step in steps_of(command) if spec_of(step).verb]
    if any(isinstance(step, Move) and step.copy for step in steps_of(command)):
        return "copying"
    return verbs[0] if verbs else "working"


def objects_of(command: Command) -> Iterator[str]:
    """Names that a command is addressed to; not all of them need be objects."""
    for step in steps_of(command):
        target = getattr(step.spec if isinstance(step, StartBenchmark) else step, "target", None)
        yield from map(object_name, getattr(step, "targets", ()))
        if isinstance(target, str):
            yield object_name(target)


def device_of(command: Command) -> str | None:
    """Where its tensors go; None: nowhere, or to several."""
    goals = set(map(target_device, steps_of(command))) - {None}
    return (goals.pop() or None) if len(goals) == 1 else None
