"""The exercise about the doctor. Data; main thread."""

from __future__ import annotations

from devexplorer.core.learn.exercise import (
    MODELS,
    Exercise,
    ExerciseEvidence,
    Step,
    built,
    did,
    elsewhere,
    moved,
    refused,
)
from devexplorer.core.records import Check, Forward


def _lines_found(evidence: ExerciseEvidence) -> set[str]:
    """The lines that the doctor named in a sample model."""
    found = [item for name, item in evidence.state.diagnoses.items() if name.startswith("noise-pitfall")]
    return {f"{word}{finding.line}" for item in found for finding in item.problems for word in ("", "line ")}


EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        "doctor",
        "Which line is it?",
        MODELS,
        "A tensor that forward makes without naming a device is on the CPU, wherever the model is. The doctor runs the"
        " model on a device, in a separate process, and names the line.",
        (
            Step("Build noise-pitfall", "Build: noise-pitfall", built("noise-pitfall")),
            Step(
                "Move it to a GPU",
                "Select it, Ctrl+1",
                moved(lambda r, c: "noise-pitfall" in c.targets[0] and elsewhere(r.destination)),
            ),
            Step("Run it: it fails", "F", refused(Forward)),
            Step(
                "Let the doctor check it",
                "C, or Check in the toolbar",
                did(Check, lambda c: c.target.startswith("noise-pitfall")),
            ),
            Step("Which line of custom.py is it?", "Tab Doctor: the finding", answers=_lines_found),
        ),
        two_devices=True,
    ),
)
