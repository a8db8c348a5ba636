"""Every exercise, in the order of the list. Data; main thread."""

from __future__ import annotations

from importlib.util import find_spec
from pkgutil import resolve_name

from devexplorer.core.features import FEATURES
from devexplorer.core.learn import objects
from devexplorer.core.learn.exercise import TOPICS, Exercise


def _all() -> tuple[Exercise, ...]:
    found = [*objects.ABOUT_TENSORS, *objects.ABOUT_MODELS]
    for feature in FEATURES:
        module = f"devexplorer.core.learn.exercises.{feature}"
        if find_spec(module) is not None:
            found += resolve_name(f"{module}:EXERCISES")
    return tuple(sorted(found, key=lambda exercise: TOPICS.index(exercise.topic)))


EXERCISES = _all()
"""By topic."""
