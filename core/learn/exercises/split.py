"""The exercise about parts of a model on several devices. Data; main thread."""

from __future__ import annotations

from collections.abc import Callable

from devexplorer.core.base import object_name
from devexplorer.core.learn.exercise import (
    MANY,
    Exercise,
    ExerciseEvidence,
    Step,
    built,
    did,
    elsewhere,
    moved,
    newest,
    refused,
    row_of,
)
from devexplorer.core.records import Forward, Move


def _part_moved(path: str) -> Callable[[Move], bool]:
    return lambda command: any(target.partition(":")[2] == path for target in command.targets)


def _in_two_places(evidence: ExerciseEvidence) -> bool:
    """Layer 2 was moved, and is not where layer 0 is."""
    command = newest(evidence, Move)
    if command is None or not _part_moved("2")(command):
        return False
    names = set(map(object_name, command.targets))
    rows = [(row_of(evidence, f"{name}:0"), row_of(evidence, f"{name}:2")) for name in names]
    return any(first is not None and second is not None and first.devices != second.devices for first, second in rows)


EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        "split-by-hand",
        "Layers on two devices",
        MANY,
        "Parts of a model can be on different devices when what they are given is brought to them.",
        (
            Step("Build mlp", "Build: mlp", built("mlp")),
            Step(
                "Move layer 0 to a GPU",
                "Open mlp, select 0, Ctrl+1",
                moved(lambda r, c: _part_moved("0")(c) and elsewhere(r.destination)),
            ),
            Step("Move layer 2 to another device", "Select 2, Ctrl+2 (Ctrl+0 where there is one GPU)", _in_two_places),
            Step("Run the model: it fails", "Select mlp, F", refused(Forward)),
            Step(
                "Insert hops and run it",
                "The offer in the inspector, or right-click, Split, Insert hops, then F",
                did(Forward),
            ),
        ),
        two_devices=True,
    ),
)
