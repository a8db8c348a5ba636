"""Exercises about devices, tensors, models and parameters. Data; main thread."""

from __future__ import annotations

from collections.abc import Callable

from devexplorer.core.base import object_name
from devexplorer.core.learn import exercise
from devexplorer.core.learn.exercise import (
    DEVICES,
    MODELS,
    PARAMETERS,
    TENSORS,
    Exercise,
    ExerciseEvidence,
    Step,
    built,
    did,
    elsewhere,
    moved,
    newest,
    objects,
    refused,
    row_of,
    there,
)
from devexplorer.core.parameters.records import Describe, Initialise, SetRequiresGrad, Tie
from devexplorer.core.records import Backward, Combine, EditElement, Forward, Move, NewTensor, SetThreads, Undo

_NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
ABSENT = "cuda:99"
"""A device that no machine has."""


def _counted(number: int, *things: str) -> set[str]:
    """A number as people write it, alone or with what is counted."""
    said = {str(number), *_NUMBERS[number : number + 1]}
    return said | {f"{item} {thing}" for item in said for thing in things}


def _usable(evidence: ExerciseEvidence) -> set[str]:
    return _counted(len(evidence.state.usable_devices), "device", "devices")


def _memory(evidence: ExerciseEvidence) -> set[str]:
    """GiB of the last device, as one would read it: whole, or with one or two digits."""
    usable = evidence.state.usable_devices
    gib = (evidence.state.devices[usable[-1]].total_bytes or 0) / 2**30 if usable else 0.0
    if not gib:
        return set()
    numbers = {f"{gib:.0f}", f"{int(gib)}", f"{gib:.1f}", f"{gib:.2f}", f"{gib:g}"}
    return {f"{number}{unit}" for number in numbers for unit in ("", " gib", "gib")}


def _threads(evidence: ExerciseEvidence) -> set[str]:
    cpu, engine = evidence.state.devices.get("cpu"), evidence.state.engine
    number = (cpu.info.threads if cpu is not None else None) or (engine.threads if engine is not None else None)
    return set() if number is None else _counted(number, "thread", "threads")


def _restarted(cards: Callable[[int], bool]) -> Callable[[ExerciseEvidence], bool]:
    """The engine was started with another CUDA_VISIBLE_DEVICES than it had when the step began, and sees so many
    cards."""

    def check(evidence: ExerciseEvidence) -> bool:
        engine, usable = evidence.state.engine, evidence.state.usable_devices
        if engine is None or not usable:
            return False
        before = evidence.kept.setdefault("visible devices", engine.cuda_visible_devices)
        if engine.cuda_visible_devices == before or not cards(sum(map(elsewhere, usable))):
            return False
        evidence.kept["visible devices"] = engine.cuda_visible_devices
        return True

    return check


def _two_places(evidence: ExerciseEvidence) -> bool:
    """Two tensors of one shape on two devices."""
    places: dict[tuple[int, ...] | None, tuple[str, ...]] = {}
    tensors = [snapshot.rows[0] for snapshot in objects(evidence) if snapshot.kind == "tensor" and snapshot.rows]
    return any(places.setdefault(row.shape, row.devices) != row.devices for row in tensors)


def _no_leaf(evidence: ExerciseEvidence) -> bool:
    """What was moved is the result of an operation now."""
    command = newest(evidence, Move)
    if command is None:
        return False
    rows = [row_of(evidence, target) for target in command.targets if ":" not in target]
    return any(row is not None and row.is_leaf is False and row.grad_fn is not None for row in rows)


def _two_tensors(evidence: ExerciseEvidence) -> bool:
    return sum(isinstance(done.command, NewTensor) and done.ok for done in evidence.done) >= 2


ON_A_GPU = "device: a GPU (cuda:0, or vgpu:0), Create"
NEW_ON_A_GPU = Step("Create a tensor on a GPU", f"Tensor, {ON_A_GPU}", did(NewTensor, lambda c: elsewhere(c.device)))

ABOUT_TENSORS = (
    Exercise(
        "this-machine",
        "What is here?",
        DEVICES,
        "torch can use the CPU, and each GPU that its build, the driver and CUDA_VISIBLE_DEVICES let it see.",
        (
            Step(
                "How many devices can hold tensors here, the CPU and virtual GPUs included?",
                "Count the device cards, without those that say why they cannot be used. Type the number.",
                answers=_usable,
            ),
        ),
    ),
    Exercise(
        "device-table",
        "Everything that nvidia-smi says",
        DEVICES,
        "Driver, temperature, power, clocks, memory, processes: nvidia-smi gets them from NVML, the library of the"
        " driver, and so does this window.",
        (
            Step(
                "How much memory does the last device have, in GiB?",
                "Click the last device card, then the tab Device. Type the number.",
                answers=_memory,
            ),
        ),
    ),
    Exercise(
        "visible-devices",
        "CUDA_VISIBLE_DEVICES",
        DEVICES,
        "CUDA reads the variable once, when a process first uses CUDA: changing it later changes nothing there. So the"
        " engine is started again, and cuda:0 may be another card afterwards.",
        (
            Step(
                "Let the engine see one card only, the last one",
                "Ctrl+K, CUDA_VISIBLE_DEVICES: untick the others, Restart engine",
                _restarted(lambda cards: cards == 1),
            ),
            Step(
                "Give it all cards back",
                "Ctrl+K, CUDA_VISIBLE_DEVICES: As inherited",
                _restarted(lambda cards: cards > 0),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "absent-device",
        "A device that is not there",
        DEVICES,
        "A device that is not there is an error in torch. The usual try_gpu(i) takes GPU i where there is one and the"
        " CPU otherwise, so that the same script runs everywhere.",
        (
            Step(
                f"Ask for a tensor on {ABSENT}, with the CPU as fallback",
                f"Tensor, device: type {ABSENT} and read what the dialog says; tick “Fall back to CPU”, Create",
                did(NewTensor, lambda c: c.fall_back and c.device == ABSENT),
            ),
            Step(
                "On which device is it?",
                "The inspector says it, and so does the tree",
                answers=lambda evidence: {"cpu", "the cpu"},
            ),
        ),
    ),
    Exercise(
        "threads",
        "The CPU is all cores",
        DEVICES,
        "cpu means all cores and all memory at once; cuda without a number means the current device. How many threads"
        " one operation uses is a setting of torch.",
        (
            Step(
                "Let an operation on the CPU use one thread",
                "Ctrl+K, CPU threads: 1, OK",
                did(SetThreads, lambda c: c.threads == 1),
            ),
            Step(
                "How many threads does it use now?",
                "Read it on the card of the CPU or in the tab Device, type it.",
                answers=_threads,
            ),
            Step(
                "Give it several again",
                "Ctrl+K, CPU threads: as many as there are cores, OK",
                did(SetThreads, lambda c: c.threads > 1),
            ),
        ),
    ),
    Exercise(
        "new-tensor",
        "A tensor on a device",
        TENSORS,
        "A tensor is created on one device, and takes memory there only.",
        (
            Step("Create a tensor of ones", "Tensor, Fill: ones, Create", did(NewTensor, lambda c: c.fill == "ones")),
            Step(
                "Create one from numbers that you type: [[1, 2], [3, 4]]",
                "Tensor: choose Custom values, enter the numbers, click Create",
                did(NewTensor, lambda c: c.fill == "text"),
            ),
            Step(
                "Create random numbers on a GPU",
                f"Tensor, Fill: rand, {ON_A_GPU}",
                did(NewTensor, lambda c: c.fill in ("rand", "randn") and elsewhere(c.device)),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "move-tensor",
        "Moving a tensor makes a new one",
        TENSORS,
        "x.to(device) gives a new tensor; the old one stays where it was as long as something holds it. Moving lets the"
        " name mean the new one, copying keeps both.",
        (
            Step("Create a tensor", "Tensor, Create", did(NewTensor)),
            Step(
                "Move it to another device",
                "Select it, Move to: the other device",
                moved(lambda r, c: r.tensors and not r.already_there and not c.copy),
            ),
            Step(
                "Copy it to another device: now both exist",
                "Select it, Copy to: another device",
                moved(lambda r, c: c.copy and r.tensors and r.destination not in r.source),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "already-there",
        "Moving to where it is",
        TENSORS,
        "x.to(device) gives the very same object back when x is there already: no copy, no memory.",
        (
            NEW_ON_A_GPU,
            Step("Move it to where it is", "Select it, Move to: the same device", moved(lambda r, c: r.already_there)),
        ),
        two_devices=True,
    ),
    Exercise(
        "requires-grad",
        "Moving what requires a gradient",
        TENSORS,
        "A moved tensor is the result of an operation: it has a grad_fn and is not a leaf, so its gradient goes to the"
        " original. Move first, and ask for gradients after that.",
        (
            Step(
                "Create a tensor on the CPU that requires grad",
                "Tensor, Device: cpu, tick “requires grad”, Create",
                did(NewTensor, lambda c: c.requires_grad),
            ),
            Step("Move it: it is no longer a leaf", "Select it, Move to: a GPU", _no_leaf),
            Step(
                "Now the other way: create one without, on a GPU",
                f"Tensor, {ON_A_GPU}",
                did(NewTensor, lambda c: not c.requires_grad and elsewhere(c.device)),
            ),
            Step(
                "… and let it require a gradient there",
                "Right-click it, Parameters, Unfreeze",
                did(SetRequiresGrad, lambda c: c.on),
            ),
        ),
        two_devices=True,
    ),
    Exercise(
        "dtype",
        "Half the bytes",
        TENSORS,
        "float16 takes half the memory of float32; it keeps about three decimal digits, and nothing above 65504. What"
        " was lost is counted.",
        (
            Step(
                "Create random numbers",
                "Tensor, Fill: randn, Create",
                did(NewTensor, lambda c: c.fill in ("rand", "randn")),
            ),
            Step("Make them float16", "Select it, dtype: float16", did(Move, lambda c: c.dtype == "float16")),
            Step("Undo: the very same bits are back", "Ctrl+Z", did(Undo)),
        ),
    ),
    Exercise(
        "several",
        "Several at once",
        TENSORS,
        "One move of several objects is all or none, and one Undo takes all of it back.",
        (
            Step("Create two tensors", "Tensor, Create, twice", _two_tensors),
            Step(
                "Select both and move them to one device",
                "Click one, Ctrl+click the other, Move to: a GPU",
                moved(lambda r, c: len(r.objects) >= 2 and not r.already_there),
            ),
            Step("Undo it: both are back", "Ctrl+Z", did(Undo)),
        ),
        two_devices=True,
    ),
    Exercise(
        "add-across",
        "Adding across devices",
        TENSORS,
        "The operands of an operation have to be on one device: PyTorch copies nothing from one to another by itself.",
        (
            Step("Create a tensor on one device", "Tensor, Create", did(NewTensor)),
            Step("Create another of the same shape on another device", f"Tensor, {ON_A_GPU}", _two_places),
            Step("Add them: it fails", "Click one, Ctrl+click the other, + (or Ctrl+K, Add tensors)", refused(Combine)),
            Step("Copy one over and add", "The first offer in the inspector, or Copy to, then +", did(Combine)),
        ),
        two_devices=True,
    ),
)


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

ABOUT_MODELS = (
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
