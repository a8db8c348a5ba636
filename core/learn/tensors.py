"""Exercises about devices and tensors. Data; main thread."""

from __future__ import annotations

from devexplorer.core.learn.checks import any_row, did, elsewhere, moved, objects, refused
from devexplorer.core.learn.exercise import Evidence, Exercise, Step
from devexplorer.core.records.experiments import Ask, Crossover, TimeWork
from devexplorer.core.records.laboratory import SetRequiresGrad
from devexplorer.core.records.messages import Combine, Move, NewTensor, SetThreads, Undo

DEVICES, TENSORS = "Devices", "Tensors"


def _usable(evidence: Evidence) -> set[str]:
    count = len(evidence.state.usable_devices)
    return {str(count), {1: "one", 2: "two", 3: "three", 4: "four"}.get(count, str(count))}


def _memory(evidence: Evidence) -> set[str]:
    """GiB of the last device, as one would read it: whole, or with one or two digits."""
    device = evidence.state.devices[evidence.state.usable_devices[-1]]
    gib = (device.total_bytes or 0) / 2**30
    numbers = {f"{gib:.0f}", f"{int(gib)}", f"{gib:.1f}", f"{gib:.2f}", f"{gib:g}"}
    return numbers | {f"{number} gib" for number in numbers}


def _visible(value: bool) -> Step:
    def check(evidence: Evidence) -> bool:
        engine = evidence.state.engine
        return engine is not None and (engine.cuda_visible_devices not in (None, "")) == value and bool(evidence.state.usable_devices)

    if value:
        return Step(
            "Let the engine see one card only: set CUDA_VISIBLE_DEVICES to 1", "Ctrl+K, CUDA_VISIBLE_DEVICES…, choose, Restart", check
        )
    return Step("Give it all cards back", "Ctrl+K, CUDA_VISIBLE_DEVICES…, as inherited, Restart", check)


def _threads(evidence: Evidence) -> set[str]:
    return {str(evidence.state.devices["cpu"].info.threads or (evidence.state.engine.threads if evidence.state.engine else 0))}


def _two_places(evidence: Evidence) -> bool:
    """Two tensors of one shape on two devices."""
    places = {(row.shape, row.devices) for snapshot in objects(evidence) for row in snapshot.rows[:1] if snapshot.kind == "tensor"}
    shapes = [shape for shape, _ in places]
    return any(shapes.count(shape) > 1 for shape in shapes)


EXERCISES = (
    Exercise(
        "this-machine", "What is here?", DEVICES,
        "torch can use the CPU, and each GPU that its build, the driver and CUDA_VISIBLE_DEVICES let it see.",
        (Step("How many devices can torch use here, the CPU included?", "Count the cards at the left; type the number", answers=_usable),),
    ),
    Exercise(
        "device-table", "Everything that nvidia-smi says", DEVICES,
        "Driver, temperature, power, clocks, memory, processes: nvidia-smi and this window read the same source, NVML.",
        (Step("How much memory does the last device have, in GiB?", "Click its card, then the tab Device; type the number",
              answers=_memory),),
    ),
    Exercise(
        "visible-devices", "CUDA_VISIBLE_DEVICES", DEVICES,
        "CUDA reads the variable once, when a process first uses it: changing it later changes nothing. So the engine is restarted, and "
        "cuda:0 means another card afterwards.",
        (_visible(True), _visible(False)), two_devices=True,
    ),
    Exercise(
        "absent-device", "A device that is not there", DEVICES,
        "try_gpu(i) of the tutorials takes GPU i where there is one and the CPU otherwise. What does that look like?",
        (
            Step("Ask for a tensor on cuda:31, without a way out", "Tensor, device: type cuda:31, Create",
                 refused(NewTensor, lambda c: c.device == "cuda:31")),
            Step("Ask again, with the CPU as the way out", "Tensor, device cuda:31, tick “use the CPU”, Create",
                 did(NewTensor, lambda c: c.fall_back and c.device == "cuda:31")),
        ),
    ),
    Exercise(
        "threads", "The CPU is all cores", DEVICES,
        "cpu means all cores and all memory at once, and cuda without a number the current device. How many cores one operation uses is a "
        "setting of torch.",
        (
            Step("Let operations on the CPU use one thread", "Ctrl+K, CPU threads…", did(SetThreads, lambda c: c.threads == 1)),
            Step("How many threads does an operation on the CPU use now?", "Read it on the CPU's card", answers=_threads),
        ),
    ),
    Exercise(
        "new-tensor", "A tensor on a device", TENSORS,
        "A tensor is created on one device, and takes memory there only.",
        (
            Step("Create a tensor of ones", "Tensor, filled with ones, Create", did(NewTensor, lambda c: c.fill == "ones")),
            Step("Create one from numbers that you type: [[1, 2], [3, 4]]", "Tensor, filled with the values typed below",
                 did(NewTensor, lambda c: c.fill == "text")),
            Step("Create random numbers on a GPU", "Tensor, filled with rand, device vgpu:0",
                 did(NewTensor, lambda c: c.fill in ("rand", "randn") and elsewhere(c.device))),
        ), two_devices=True,
    ),
    Exercise(
        "move-tensor", "Moving a tensor makes a new one", TENSORS,
        "x.to(device) gives a new tensor; the old one stays where it was until nothing holds it. Moving rebinds the name, copying keeps "
        "both.",
        (
            Step("Create a tensor", "Tensor, Create", did(NewTensor)),
            Step("Move it to another device", "Select it, Move to", moved(lambda r, c: r.tensors and not r.already_there and not c.copy)),
            Step("Copy it to another device: both are there now", "Copy to", moved(lambda r, c: c.copy)),
        ), two_devices=True,
    ),
    Exercise(
        "already-there", "Moving to where it is", TENSORS,
        "x.to(device) gives the very same object back when x is there already: no copy, no memory.",
        (
            Step("Create a tensor on a GPU", "Tensor, device vgpu:0, Create", did(NewTensor, lambda c: elsewhere(c.device))),
            Step("Move it to where it is", "Select it, Move to the same device", moved(lambda r, c: r.already_there)),
        ), two_devices=True,
    ),
    Exercise(
        "requires-grad", "Moving what requires a gradient", TENSORS,
        "A moved tensor is the result of an operation: it has a grad_fn and is no leaf, so gradients gather in the original. Move "
        "first, and wrap after that.",
        (
            Step("Create a tensor that requires grad", "Tensor, tick “requires grad”", did(NewTensor, lambda c: c.requires_grad)),
            Step("Move it: it is no leaf any more", "Select it, Move to",
                 any_row(lambda row: row.is_leaf is False and row.grad_fn is not None)),
            Step("Now the other way: create one without, on a GPU", "Tensor, device vgpu:0",
                 did(NewTensor, lambda c: not c.requires_grad and elsewhere(c.device))),
            Step("… and let it require a gradient there", "Lab, Parameters, Unfreeze", did(SetRequiresGrad, lambda c: c.on)),
        ), two_devices=True,
    ),
    Exercise(
        "numpy", "NumPy and the GPU", TENSORS,
        "NumPy knows the host's memory only: a tensor on a GPU has to come to the CPU first.",
        (
            Step("Create a tensor on a GPU", "Tensor, device vgpu:0", did(NewTensor, lambda c: elsewhere(c.device))),
            Step("Ask whether it can become a NumPy array", "Lab, Ask, Can it become a NumPy array?",
                 did(Ask, lambda c: c.question == "numpy")),
            Step("… and through .cpu()", "Take the offer in the inspector, or Lab, Ask", did(Ask, lambda c: c.question == "cpu-numpy")),
        ), two_devices=True,
    ),
    Exercise(
        "dtype", "Half the bytes", TENSORS,
        "float16 takes half the memory of float32 and keeps three decimal digits, up to 65504. What was lost is counted.",
        (
            Step("Create random numbers", "Tensor, filled with randn", did(NewTensor, lambda c: c.fill in ("rand", "randn"))),
            Step("Make them float16", "dtype, float16", did(Move, lambda c: c.dtype in ("float16", "half"))),
            Step("Undo: the very same bits are back", "Ctrl+Z", did(Undo)),
        ),
    ),
    Exercise(
        "several", "Several at once", TENSORS,
        "One move of several objects is all or none, and one Undo takes all of it back.",
        (
            Step("Create two tensors", "Tensor, twice", lambda e: sum(isinstance(d.command, NewTensor) and d.ok for d in e.done) >= 2),
            Step("Select both and move them to one device", "Ctrl+click, Move to", moved(lambda r, c: len(r.objects) >= 2)),
            Step("Undo it", "Ctrl+Z", did(Undo)),
        ), two_devices=True,
    ),
    Exercise(
        "add-across", "Adding across devices", TENSORS,
        "PyTorch computes on one device at a time and copies nothing by itself.",
        (
            Step("Create a tensor on one device", "Tensor", did(NewTensor)),
            Step("Create another of the same shape on another device", "Tensor, another device", _two_places),
            Step("Add them: it fails", "Select both, Ctrl+K, Add tensors", refused(Combine)),
            Step("Bring one over", "Take an offer in the inspector, or Copy to", did(Move)),
            Step("Add two that are on one device", "Select both, Ctrl+K, Add tensors", did(Combine)),
        ), two_devices=True,
    ),
    Exercise(
        "type", "type() before and after", TENSORS,
        "A tensor's type() names the device's kind; the class of a model does not change when it moves.",
        (
            Step("Create a tensor on the CPU", "Tensor", did(NewTensor, lambda c: c.device == "cpu")),
            Step("Ask for its type()", "Lab, Ask, What is its type()?", did(Ask, lambda c: c.question == "type")),
            Step("Move it to a GPU", "Move to", did(Move, lambda c: elsewhere(c.device))),
            Step("Ask again", "Lab, Ask, What is its type()?", did(Ask, lambda c: c.question == "type")),
        ), two_devices=True,
    ),
    Exercise(
        "timing", "Timing a GPU", TENSORS,
        "A GPU works behind the program's back: a clock that is read before torch.cuda.synchronize() has timed the launch only.",
        (Step("Time products without and with synchronising", "Tab Experiments, Time work, Run", did(TimeWork)),),
    ),
    Exercise(
        "crossover", "Where the GPU overtakes", TENSORS,
        "Small products are faster on the CPU: launching, and copying there and back, cost more than computing.",
        (Step("Compare the CPU and a GPU over growing sizes", "Tab Experiments, Crossover, Run", did(Crossover)),), two_devices=True,
    ),
)  # fmt: skip
