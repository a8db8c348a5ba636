"""The exercise about work on two devices at once. Data; main thread."""

from __future__ import annotations

from devexplorer.core.learn.exercise import MANY, Exercise, ExerciseEvidence, Step, newest
from devexplorer.core.records import StartBenchmark
from devexplorer.core.scaling.kind import ScalingResult, ScalingSpec


def _scaling_ran(evidence: ExerciseEvidence) -> bool:
    """A run that compares devices came to its end."""
    command = newest(evidence, StartBenchmark)
    if command is None or not isinstance(command.spec, ScalingSpec):
        return False
    run = evidence.state.runs.get(command.request)
    return run is not None and isinstance(run.result, ScalingResult) and run.result.speedup is not None


EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        "scaling",
        "Two GPUs at once",
        MANY,
        "Work on two devices can run at the same time, because launching it does not wait for it.",
        (
            Step(
                "Measure one job per device, at once and one after the other",
                "Tab Benchmark, Parallel, Start",
                _scaling_ran,
            ),
        ),
        two_devices=True,
    ),
)
