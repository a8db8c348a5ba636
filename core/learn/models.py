"""Exercises about models, parameters, files and splits. Data; main thread."""

from __future__ import annotations

from devexplorer.core.learn.checks import built, did, either, elsewhere, moved, objects, refused
from devexplorer.core.learn.exercise import Evidence, Exercise, Step
from devexplorer.core.records.benchmark import ScalingSpec
from devexplorer.core.records.experiments import Replicate
from devexplorer.core.records.laboratory import Describe, Initialise, InsertHops, ListFile, Load, Save, Tie
from devexplorer.core.records.messages import Backward, EditElement, Forward, Move, NewTensor

MODELS, PARAMETERS, FILES, MANY = "Models", "Parameters", "Files", "Several devices"


def _build(recipe: str, words: str = "") -> Step:
    return Step(f"Build {words or recipe}", f"Build, {recipe}", built(recipe))


def _tied_elsewhere(evidence: Evidence) -> bool:
    """A parameter that is tied, on a device that is not the CPU."""
    return any(row.tied_to and row.kind == "parameter" and elsewhere(row.devices[0]) for one in objects(evidence) for row in one.rows)


def _in_pieces(evidence: Evidence) -> bool:
    return any(len(snapshot.rows[0].devices) > 1 for snapshot in objects(evidence))


_file_refused = either(refused(ListFile), refused(Load))


def _scaling_ran(evidence: Evidence) -> bool:
    return any(isinstance(run.spec, ScalingSpec) and run.result is not None for run in evidence.state.runs.values())


EXERCISES = (
    Exercise(
        "move-model", "A model moves in place", MODELS,
        "model.to(device) changes the model itself and returns it: every parameter and buffer moves, the class stays what it was.",
        (
            _build("mlp"),
            Step("Move it to a GPU", "Select it, Ctrl+1", moved(lambda r, c: r.parameters and elsewhere(r.destination))),
            Step("Move it back", "Ctrl+0", moved(lambda r, c: r.parameters and r.destination == "cpu")),
        ), two_devices=True,
    ),
    Exercise(
        "wrong-device", "Expected all tensors to be on the same device", MODELS,
        "The commonest error of all: the input is on one device and the weights on another. The layer that stopped is named.",
        (
            _build("mlp"),
            Step("Move it to a GPU", "Ctrl+1", moved(lambda r, c: r.parameters and elsewhere(r.destination))),
            Step("Create an input on the CPU: rand, 2x20", "Tensor, rand, shape 2x20", did(NewTensor, lambda c: c.shape[-1:] == (20,))),
            Step("Run the model on it: it fails", "Select model and input, F", refused(Forward)),
            Step("Mend it with one click", "The first offer in the inspector", did(Move)),
            Step("Run it again", "Select model and input, F", did(Forward)),
        ), two_devices=True,
    ),
    Exercise(
        "blocks", "Blocks, and the list that hides them", MODELS,
        "Modules inside modules are found and moved; layers in a plain Python list are not.",
        (
            _build("nested", "a model of blocks: nested"),
            _build("list-pitfall", "the pitfall: list-pitfall"),
            Step("Try to move list-pitfall: nothing happens", "Select it, Move to any device",
                 moved(lambda r, c: r.already_there and not r.parameters)),
        ),
    ),
    Exercise(
        "module-list", "An nn.ModuleList does not run", MODELS,
        "It registers its layers, so that they move, but it has no forward: your own forward loops over it.",
        (
            _build("module-list"),
            Step("Run the list itself: it fails", "Open the tree, select layers, F",
                 refused(Forward, lambda c: c.target.endswith(":layers"))),
            Step("Run the whole model", "Select module-list, F", did(Forward, lambda c: ":" not in c.target)),
        ),
    ),
    Exercise(
        "names", "A block called “block 0”", MODELS,
        "Any text without a dot can name a module. Python's attribute syntax cannot spell it, get_submodule can.",
        (
            _build("nested"),
            Step("Look at a parameter in one of the blocks", "Open 0, block 2, 0, select weight, V",
                 did(Describe, lambda c: "block" in c.target)),
        ),
    ),
    Exercise(
        "lazy", "Layers without a shape", MODELS,
        "A lazy layer learns its input's size at the first forward; a move before that only notes the device.",
        (
            _build("lazy-mlp"),
            Step("Move it before it has any shape", "Move to", moved(lambda r, c: r.uninitialised)),
            Step("Run it: the shapes appear", "F", did(Forward)),
        ), two_devices=True,
    ),
    Exercise(
        "custom-layers", "Layers of your own", MODELS,
        "A layer without parameters works wherever its input is; one with parameters has a place. y_k = Σ W_ijk x_i x_j is a layer too.",
        (_build("custom-layers"), Step("Run it", "F", did(Forward, lambda c: c.target.startswith("custom-layers")))),
    ),
    Exercise(
        "vgg", "138 million parameters", MODELS,
        "VGG-16 with batch norm takes 528 MiB before a single image is seen: watch the memory plot jump.",
        (
            _build("vgg16-bn"),
            Step("Place it on the first GPU", "Ctrl+1", moved(lambda r, c: r.bytes > 5e8 and elsewhere(r.destination))),
        ), two_devices=True,
    ),
    Exercise(
        "read-parameters", "Reading parameters", PARAMETERS,
        "Names are those of state_dict: the path through the modules, then weight or bias.",
        (
            _build("mlp"),
            Step("Look at the values of 2.weight", "Open the tree, select 2.weight, V",
                 did(Describe, lambda c: c.target.endswith(":2.weight"))),
        ),
    ),
    Exercise(
        "initialise", "Initial values", PARAMETERS,
        "How a network starts decides whether it learns. Compare the histograms before and after.",
        (
            _build("mlp"),
            Step("Give 0.weight Xavier's values", "Select 0.weight, I, Xavier", did(Initialise, lambda c: c.rule.startswith("xavier"))),
            Step("Give it the tutorial's own rule: piecewise", "I, piecewise", did(Initialise, lambda c: c.rule == "piecewise")),
            Step("Set one element to 42", "E", did(EditElement, lambda c: c.value == 42)),
        ),
    ),
    Exercise(
        "tied", "One parameter, two names", PARAMETERS,
        "Tied layers hold the very same Parameter: it counts once, changing one changes both, gradients of both uses add up, and it stays "
        "tied when it moves.",
        (
            Step("Build module-list", "Build, module-list", built("module-list")),
            Step("Tie layers.1.weight to layers.0.weight", "Select both with Ctrl, Lab, Parameters, Tie", did(Tie)),
            Step("Run forward and backward", "Shift+F", did(Backward)),
            Step("Move the model: still one", "Ctrl+1", _tied_elsewhere),
        ), two_devices=True,
    ),
    Exercise(
        "data-in-forward", "Why there is no gradient", PARAMETERS,
        "A layer that uses weight.data in its forward computes the right output, but autograd does not know of it.",
        (_build("data-pitfall"), Step("Run backward and read what is missing", "Shift+F", did(Backward))),
    ),
    Exercise(
        "save-load", "Saving and loading", FILES,
        "Tensors and state dicts are data: loading them runs no code, and they can go to any device (map_location).",
        (
            _build("mlp"),
            Step("Save its state dict", "Ctrl+S", did(Save, lambda c: c.form != "module")),
            Step("Load one tensor of the file onto a GPU", "File, Load tensors…", did(Load, lambda c: elsewhere(c.device))),
        ), two_devices=True,
    ),
    Exercise(
        "whole-model", "Why not torch.save(model)", FILES,
        "A whole model in a file is a pickle: it needs its class, and loading it can run anything.",
        (
            _build("mlp"),
            Step("Save the whole model", "Ctrl+S, form: a whole model", did(Save, lambda c: c.form == "module")),
            Step("Try to load it: it is refused", "File, Load tensors…, choose the file", _file_refused),
        ),
    ),
    Exercise(
        "split-by-hand", "Layers on two devices", MANY,
        "Parts of a model can be on different devices when their inputs are brought to them.",
        (
            _build("mlp"),
            Step("Move layer 0 to one GPU and layer 2 to another", "Select 0, Ctrl+1; select 2, Ctrl+2", _in_pieces),
            Step("Run the model: it fails", "Select mlp, F", refused(Forward)),
            Step("Insert hops", "The offer in the inspector, or Lab, Split, Insert hops", did(InsertHops, lambda c: c.on)),
            Step("Run it again", "F", did(Forward)),
        ), two_devices=True,
    ),
    Exercise(
        "replicate", "A copy on every device", MANY,
        "DataParallel's picture: every device has all parameters and a part of the batch.",
        (_build("mlp"), Step("Replicate it over two devices", "Tab Experiments, Replicate, Run", did(Replicate))), two_devices=True,
    ),
    Exercise(
        "scaling", "Two GPUs at once", MANY,
        "Work on two devices can run at the same time, because launching does not wait.",
        (Step("Measure one job per device, at once and one after the other", "Tab Benchmark, Scaling, Start", _scaling_ran),),
        two_devices=True,
    ),
)  # fmt: skip
