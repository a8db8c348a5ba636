"""Exercises about files. Data; main thread."""

from __future__ import annotations

from devexplorer.core.files.records import ListFile, Load, Save
from devexplorer.core.learn.exercise import FILES, Exercise, Step, built, did, either, elsewhere, refused

_BUILD = Step("Build mlp", "Build: mlp", built("mlp"))

_refused = either(refused(ListFile), refused(Load))

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        "save-load",
        "Saving and loading",
        FILES,
        "A state dict is tensors with names: it can be loaded without running any code, and onto any device"
        " (map_location).",
        (
            _BUILD,
            Step("Save its state dict", "Select it, Ctrl+Shift+S, file, Save", did(Save, lambda c: c.form != "module")),
            Step(
                "Load one tensor of the file onto a GPU",
                "File, Load tensors, file, to device: a GPU, click one tensor, Load",
                did(Load, lambda c: elsewhere(c.device) and len(c.entries) == 1),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "whole-model",
        "Why not torch.save(model)",
        FILES,
        "A whole model in a file is a pickle: it needs its class to load, and loading it can run anything.",
        (
            _BUILD,
            Step(
                "Save the whole model",
                "Select it, Ctrl+Shift+S, form: a whole model, file, Save",
                did(Save, lambda c: c.form == "module"),
            ),
            Step(
                "Try to load it: it is refused",
                "File, Load tensors, file: the same",
                either(refused(ListFile), refused(Load)),
            ),
        ),
    ),
)
