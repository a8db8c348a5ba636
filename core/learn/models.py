"""Exercises about models and parameters. Data; main thread."""

from __future__ import annotations

from devexplorer.core.base import object_name
from devexplorer.core.learn import exercise
from devexplorer.core.learn.exercise import (
    MODELS,
    PARAMETERS,
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
    there,
)
from devexplorer.core.parameters.records import Describe, Initialise, Tie
from devexplorer.core.records import Backward, EditElement, Forward, NewTensor


def _build(recipe: str, words: str = "") -> Step:
    return Step(f"Build {words or recipe}", f"Build: {recipe}", built(recipe))


_lazy_is_there = there(lambda item: item.source == "lazy-mlp" and any(not row.initialised for row in item.rows))


def _ties(evidence: ExerciseEvidence) -> bool:
    """Two parameters were tied; both names are looked at again later."""
    command = newest(evidence, Tie)
    if command is None:
        return False
    evidence.kept["tied"] = (command.first, command.second)
    return True


def _still_tied(evidence: ExerciseEvidence) -> bool:
    """The model moved, and one of the names still means the parameter of the other."""
    names = evidence.kept.get("tied", ())
    assert isinstance(names, tuple)
    rows = [row_of(evidence, name) for name in names]
    models = set(map(object_name, names))
    return _model_moved(models)(evidence) and any(row is not None and row.tied_to is not None for row in rows)


def _model_moved(models: set[str]) -> exercise.Check:
    return moved(lambda r, c: r.parameters and models & set(c.targets))


_TO_A_GPU = Step("Move it to a GPU", "Select it, Ctrl+1", moved(lambda r, c: r.parameters and elsewhere(r.destination)))

EXERCISES = (
    Exercise(
        "move-model",
        "A model moves in place",
        MODELS,
        "model.to(device) changes the model itself and returns it: every parameter and buffer moves, the class stays"
        " the same.",
        (
            _build("mlp"),
            _TO_A_GPU,
            Step("Move it back", "Ctrl+0", moved(lambda r, c: r.parameters and r.destination == "cpu")),
        ),
        two_devices=True,
    ),
    Exercise(
        "wrong-device",
        "Expected all tensors to be on the same device",
        MODELS,
        "The most common error: the input is on one device and the weights are on another. The layer that stopped"
        " is named.",
        (
            _build("mlp"),
            _TO_A_GPU,
            Step(
                "Create an input on the CPU: rand, 2x20",
                "Tensor, Fill: rand, Shape: 2x20, Device: cpu, Create",
                did(NewTensor, lambda c: c.shape[-1:] == (20,) and not elsewhere(c.device)),
            ),
            Step(
                "Run the model on it: it fails",
                "Click the model, Ctrl+click the input, F",
                refused(Forward, lambda c: c.input),
            ),
            Step(
                "Fix it and run it with one click",
                "The first offer in the inspector",
                did(Forward, lambda c: c.input),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "blocks",
        "Blocks, and the list that hides them",
        MODELS,
        "Modules inside modules are found and moved; layers in a plain Python list are not.",
        (
            _build("nested", "a model of blocks: nested"),
            _build("list-pitfall", "the pitfall: list-pitfall"),
            Step(
                "Try to move list-pitfall: nothing happens",
                "Select it, Ctrl+1",
                moved(lambda r, c: r.already_there and not r.parameters),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "module-list",
        "An nn.ModuleList does not run",
        MODELS,
        "It registers its layers, so that they move, but it has no forward: your own forward loops over it.",
        (
            _build("module-list"),
            Step(
                "Run the list itself: it fails",
                "Open module-list in the tree, select layers, F",
                refused(Forward, lambda c: c.target.endswith(":layers")),
            ),
            Step("Run the whole model", "Select module-list, F", did(Forward, lambda c: ":" not in c.target)),
        ),
    ),
    Exercise(
        "names",
        "A block called “block 0”",
        MODELS,
        'Any text without a dot can name a module. Attribute syntax cannot spell a space; get_submodule("0.block 2")'
        " can.",
        (
            _build("nested"),
            Step(
                "Look at a parameter in one of the blocks",
                "Open 0, block 2 and 0 in the tree, select weight, V",
                did(Describe, lambda c: "block " in c.target),
            ),
        ),
    ),
    Exercise(
        "lazy",
        "Layers without a shape",
        MODELS,
        "A lazy layer learns the size of its input at the first forward; a move before that only notes the device.",
        (
            Step("Build lazy-mlp", "Build: lazy-mlp", _lazy_is_there),
            Step("Move it before it has any shape", "Select it, Ctrl+1", moved(lambda r, c: r.uninitialised)),
            Step("Run it: the shapes appear", "F", did(Forward)),
        ),
        two_devices=True,
    ),
    Exercise(
        "custom-layers",
        "Your own layers",
        MODELS,
        "A layer without parameters works wherever its input is; one with parameters has a place. y_k = Σ W_ijk x_i x_j"
        " is a layer too.",
        (
            _build("custom-layers"),
            Step("Run it", "Select it, F", did(Forward, lambda c: c.target.startswith("custom-layers"))),
        ),
    ),
    Exercise(
        "vgg",
        "138 million parameters",
        MODELS,
        "VGG-16 with batch norm takes 528 MiB before it has seen a single image: watch the memory plot jump.",
        (
            _build("vgg16-bn"),
            Step(
                "Place it on the first GPU",
                "Select it, Ctrl+1",
                moved(lambda r, c: r.bytes > 5e8 and elsewhere(r.destination)),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "read-parameters",
        "Reading parameters",
        PARAMETERS,
        "Names are those of state_dict: the path through the modules, then weight or bias.",
        (
            _build("mlp"),
            Step(
                "Look at the values of 2.weight",
                "Open mlp and 2 in the tree, select weight, V",
                did(Describe, lambda c: c.target.endswith(":2.weight")),
            ),
        ),
    ),
    Exercise(
        "initialise",
        "Initial values",
        PARAMETERS,
        "How a network starts can decide whether it learns. The tab Values shows the histogram before and after.",
        (
            _build("mlp"),
            Step(
                "Give 0.weight the values of Xavier",
                "Open mlp and 0, select weight, I, rule: Xavier, Initialise",
                did(Initialise, lambda c: c.rule.startswith("xavier")),
            ),
            Step(
                "Give it a custom rule: uniform, with small values set to 0",
                "I, rule: piecewise, Initialise",
                did(Initialise, lambda c: c.rule == "piecewise"),
            ),
            Step("Set one element to 42", "E, value: 42, Set", did(EditElement, lambda c: c.value == 42)),
        ),
    ),
    Exercise(
        "tied",
        "One parameter, two names",
        PARAMETERS,
        "Tied layers hold the very same Parameter: it counts once, changing one changes both, the gradients of both"
        " uses add up, and it stays tied when it moves.",
        (
            _build("module-list"),
            Step(
                "Tie layers.1.weight to layers.0.weight",
                "Open layers, 0 and 1; click one weight, Ctrl+click the other, right-click, Parameters, Tie",
                _ties,
            ),
            Step("Run forward and backward", "Select module-list, Shift+F", did(Backward)),
            Step("Move the model: still one", "Ctrl+1", _still_tied),
        ),
        two_devices=True,
    ),
    Exercise(
        "data-in-forward",
        "Why there is no gradient",
        PARAMETERS,
        "A layer that reads weight.data in its forward computes the right output, but autograd does not see the weight:"
        " it gets no gradient and never learns.",
        (
            _build("data-pitfall"),
            Step(
                "Run backward and read what is missing",
                "Select it, Shift+F",
                did(Backward, lambda c: c.target.startswith("data-pitfall")),
            ),
        ),
    ),
)
