"""Carries out `Ask`: asks a tensor or a model one of Python's questions, really, and explains what it answers. Runs on
the jobs thread."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import (
    BadInput,
    DevExplorerError,
    ProgressMonitor,
    bytes_text,
    count_text,
    first_line,
    object_name,
    seconds_text,
    shape_text,
)
from devexplorer.core.experiments.records import Ask
from devexplorer.core.models import device_id, dtype_name, is_uninitialised, type_name
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.workspace import CommandResult, Target, Timing, Workspace

# Questions that bring values to Python: numpy(), cpu().numpy(), item(), tolist().

MOST_IN_A_LIST = 1_000_000
"""Elements that `tolist` makes into Python objects: at about 32 bytes each that is 32 MB."""
IN_NUMPY = {
    *(torch.float64, torch.float32, torch.float16, torch.complex64, torch.complex128, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
}
"""dtypes that NumPy has too; bfloat16 and the 8-bit floats are not among them."""
WAITS = (
    "Launches of a GPU return at once, but this one has to wait: everything that was launched before must be done"
    " before there is a value. That is a hidden synchronisation: in a training loop, ask for it every hundredth step,"
    " not in each one."
)
_SHORT = reprlib.Repr()
_SHORT.maxlist = 3


def numpy(asked: AskedTensor) -> Answer:
    """`x.numpy()`: the same memory on the CPU, a TypeError on a GPU."""
    tensor = asked.tensor
    try:
        array = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        return _no_array(asked, error)
    same = array.__array_interface__["data"][0] == tensor.data_ptr()
    words = f"NumPy gets an array of {shape_text(array.shape)} {array.dtype}."
    if same and tensor.numel():
        words += (
            f" Nothing was copied: the array and {asked.target} are the same memory, so that changing one changes the"
            " other. That is why only tensors on the CPU can do this: NumPy cannot reach the memory of a GPU."
        )
    title = f"{asked.target} is a NumPy array without a copy" if same else f"{asked.target} as a NumPy array"
    return asked.answer(
        title,
        words,
        ("array", f"{shape_text(array.shape)} {array.dtype}"),
        ("memory", "shared with the tensor" if same else "the array's own"),
        ("device", asked.device),
        ("dtype", dtype_name(tensor.dtype)),
        ("values", _SHORT.repr(array.tolist()) if array.size <= MOST_IN_A_LIST else f"{array.size:,} of them"),
        code=f"print({asked.code}.numpy())",
    )


def _no_array(asked: AskedTensor, error: Exception) -> Answer:
    tensor = asked.tensor
    facts = [("requires_grad", str(tensor.requires_grad)), ("dtype", dtype_name(tensor.dtype))]
    if asked.device != "cpu":
        why = (
            f"NumPy works in the host's memory and {asked.target} is in the memory of"
            f" {asked.device}{' (simulated, with the message of CUDA)' if asked.simulated else ''}. PyTorch copies"
            f" nothing behind your back: .cpu() makes the copy, which is a second tensor, and {asked.target} stays on"
            f" {asked.device}."
        )
        if tensor.requires_grad:
            why += f" {_detach(asked.target)}"
    elif tensor.requires_grad:
        why = _detach(asked.target)
    elif tensor.dtype in IN_NUMPY:
        return asked.refused("numpy()", error, "NumPy has nothing like this tensor.", *facts)
    else:
        why = f"NumPy has no {dtype_name(tensor.dtype)}: convert it first, .float() is exact for it."
    way = way_to_numpy(tensor)
    return asked.refused("numpy()", error, why, *facts, offers={f"Ask for {way} instead": "cpu-numpy"})


def _detach(target: str) -> str:
    return (
        f"{target} requires grad, and autograd could not follow what NumPy does with its values: .detach() gives the"
        " same values without the graph, so that no gradient is expected from it."
    )


def way_to_numpy(tensor: torch.Tensor) -> str:
    """What leads from this tensor to an array, as Python after its name."""
    detach = ".detach()" if tensor.requires_grad else ""
    convert = "" if tensor.dtype in IN_NUMPY else ".float()"
    return f"{detach}.cpu(){convert}.numpy()"


def cpu_numpy(asked: AskedTensor) -> Answer:
    """`x.cpu().numpy()`: a copy on the host; the original stays where it is."""
    tensor, way = asked.tensor, way_to_numpy(asked.tensor)

    def copy() -> Any:
        host = tensor.detach().cpu()
        return (host if host.dtype in IN_NUMPY else host.float()).numpy()

    array, time_text = _timed(asked, copy)
    copied = asked.device != "cpu"
    words = f"NumPy gets an array of {shape_text(array.shape)} {array.dtype}."
    if copied:
        words += (
            f" .cpu() copied {bytes_text(tensor.nbytes)} from {asked.device} to the host; {asked.target} itself is"
            f" still on {asked.device}, and changing the array does not change it."
        )
    else:
        words += " It is on the CPU already, so that .cpu() returned the very same tensor and nothing was copied."
    if tensor.requires_grad:
        words += f" {_detach(asked.target)}"
    if ".float()" in way:
        words += f" NumPy has no {dtype_name(tensor.dtype)}, so .float() converted it: each value is exact in float32."
    return asked.answer(
        f"{asked.target} as a NumPy array",
        words,
        ("array", f"{shape_text(array.shape)} {array.dtype}"),
        (f"{asked.target} is on", asked.device),
        ("copied", bytes_text(tensor.nbytes) if copied else "nothing"),
        ("time", time_text),
        ("values", _SHORT.repr(array.tolist()) if array.size <= MOST_IN_A_LIST else f"{array.size:,} of them"),
        code=f"print({asked.code}{way})",
    )


def item(asked: AskedTensor) -> Answer:
    """`x.item()`: one element as a Python number, with the synchronisation that hides in it."""
    tensor = asked.tensor
    try:
        value, time_text = _timed(asked, tensor.item)
    except RuntimeError as error:
        few = 0 < tensor.numel() <= MOST_IN_A_LIST
        why = f"item() is for tensors of one element, and {asked.target} is {shape_text(tuple(tensor.shape))}: " + (
            "tolist() makes Python numbers of all of them." if few else "index one element first."
        )
        offers = {"Ask for tolist() instead": "tolist"} if few else {}
        return asked.refused("item()", error, why, ("elements", f"{tensor.numel():,}"), offers=offers)
    words = f"A Python {type(value).__name__}, no tensor any more: it is on no device and has no gradient."
    words += (
        f" {WAITS}"
        if asked.device != "cpu"
        else " On the CPU the value is there already, so nothing has to be waited for."
    )
    return asked.answer(
        f"{asked.target}.item() is {value!r}",
        words,
        ("value", repr(value)),
        ("type", type(value).__name__),
        ("device", asked.device),
        ("time", time_text),
        code=f"print({asked.code}.item())",
    )


def tolist(asked: AskedTensor) -> Answer:
    """`x.tolist()`: nested lists of Python numbers, copied to the host first."""
    tensor = asked.tensor
    if tensor.numel() > MOST_IN_A_LIST:
        raise BadInput(
            f"'{asked.target}' has {tensor.numel():,} elements, and each would become a Python object; a list is made"
            f" of {MOST_IN_A_LIST:,} at most: ask for cpu-numpy instead, or index a part of it"
        )
    value, time_text = _timed(asked, tensor.tolist)
    kind = "a Python number" if tensor.dim() == 0 else f"nested lists of {count_text(tensor.numel(), 'Python number')}"
    if tensor.dim() == 1:
        kind = f"a list of {count_text(tensor.numel(), 'Python number')}"
    words = f"It answers with {kind}; the tensor stays what and where it is. "
    if asked.device == "cpu":
        words += "Each element becomes a separate object, which is slow for large tensors: numpy() copies nothing."
    else:
        words += f"All {bytes_text(tensor.nbytes)} are copied from {asked.device} first, in one go. {WAITS}"
    return asked.answer(
        f"{asked.target}.tolist()",
        words,
        ("value", _SHORT.repr(value)),
        ("elements", f"{tensor.numel():,}"),
        (f"{asked.target} is on", asked.device),
        ("time", time_text),
        code=f"print({asked.code}.tolist())",
    )


def _timed(asked: AskedTensor, call: Callable[[], Any]) -> tuple[Any, str]:
    """What the call returns, and its time on the clock of the device, in words."""
    timing = Timing(asked.workspace.registry, [asked.device])
    value = call()
    seconds, _ = timing.stop()
    return value, seconds_text(seconds, timing.simulated)


# Questions about what and where something is: type(), is_leaf, device.


def type_of_tensor(asked: AskedTensor) -> Answer:
    """`x.type()`: an old name that holds the dtype and the kind of device."""
    tensor, said = asked.tensor, asked.tensor.type()
    host, card = type_names(tensor)
    words = (
        "type() gives the name that such tensors had before there were dtypes and devices: it holds both. On the CPU"
        f" {asked.target} would say {host}, on a GPU of CUDA {card}."
    )
    python_class = "torch.nn.Parameter" if type_name(tensor) == "Parameter" else f"torch.{type_name(tensor)}"
    if asked.simulated:
        words += (
            f" It says {said} here because this GPU is simulated: its kind is vgpu. A real card would say {card}."
            f" type({asked.code}) is {python_class} on every real device; here {type(tensor).__name__} stands in"
            " for it."
        )
    else:
        words += f" type({asked.code}) does not change with the device: it is {python_class} everywhere."
    words += " Current code uses x.dtype and x.device."
    return asked.answer(
        f"{asked.target}.type() is {said}",
        words,
        ("type()", said),
        ("on the CPU", host),
        ("on a real CUDA GPU", card),
        ("type(x)", python_class + (f" (here {type(tensor).__name__})" if asked.simulated else "")),
        ("dtype", str(tensor.dtype)),
        ("device", asked.device),
        code=f"print({asked.code}.type())",
    )


def type_names(tensor: Tensor) -> tuple[str, str]:
    """What `type()` says of such a tensor on the CPU, and on a CUDA device."""
    word = tensor.type().rpartition(".")[2]
    return f"torch.{word}", f"torch.cuda.{word}"


def type_of_module(target: Target, module: nn.Module) -> Answer:
    """`type(model)`: the class, which no move changes."""
    kind, code = type(module), target.code()
    tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if not is_uninitialised(tensor)]
    said = sorted({tensor.type() for tensor in tensors})
    words = (
        f"The class of {target.title} is {kind.__name__}, on every device: a move exchanges the memory of its"
        " parameters and leaves the object what it is."
    )
    if said:
        words += f" Its tensors' types depend on the device: {', '.join(said)}."
    if any(name.startswith("torch.vgpu.") for name in said):
        words += f" On a real card that would be {', '.join(sorted({type_names(tensor)[1] for tensor in tensors}))}."
    words += " (model.type() is something else: it casts all tensors to the given type.)"
    facts = [Fact("type", f"{kind.__module__}.{kind.__qualname__}"), *(Fact("tensors", name) for name in said)]
    printed = f"print(type({code}))\nprint({{tensor.type() for tensor in {code}.parameters()}})"
    return Answer(
        title=f"{target.title} is a {kind.__name__}",
        words=words,
        facts=tuple(facts),
        code=printed,
        subject=target.name,
    )


def is_leaf(asked: AskedTensor) -> Answer:
    """`x.is_leaf`: whether gradients arrive in the tensor itself."""
    tensor = asked.tensor
    made_by = None if tensor.grad_fn is None else tensor.grad_fn.name()
    if not tensor.requires_grad:
        words = "It does not require grad, and such tensors are leaves by definition: autograd does not look at them."
    elif made_by is None:
        words = (
            "It was made by you, not computed: after backward() its gradient is in .grad, and an optimizer can take it."
        )
    else:
        words = (
            f"It was computed by {made_by} from something that requires grad. Gradients pass through it and are not"
            " kept in its .grad (retain_grad() would keep them), and no optimizer takes it. Moving a tensor that"
            " requires grad is such a computation: move first, then call requires_grad_()."
        )
    return asked.answer(
        f"{asked.target} is {'a leaf' if tensor.is_leaf else 'not a leaf'}",
        words,
        ("is_leaf", str(tensor.is_leaf)),
        ("requires_grad", str(tensor.requires_grad)),
        ("grad_fn", made_by or "None"),
        ("device", asked.device),
        code=f"print({asked.code}.is_leaf, {asked.code}.requires_grad, {asked.code}.grad_fn)",
    )


def device_of_tensor(asked: AskedTensor) -> Answer:
    """`x.device`: where it is."""
    words = f"Its values are in the memory of {asked.device}, and what is computed with it alone is computed there."
    if asked.simulated:
        words += " That GPU is simulated: on a real card this would be a device like cuda:0."
    if asked.device == "cpu":
        words += " cpu is all cores and all of the host's memory: there is no cpu:1."
    elif not asked.simulated:
        words += (
            " The number is torch's ordinal, which counts visible devices only; nvidia-smi may number them otherwise."
        )
    return asked.answer(
        f"{asked.target} is on {asked.device}",
        words,
        ("device", asked.device),
        ("type", asked.tensor.device.type),
        ("index", str(asked.tensor.device.index)),
        code=f"print({asked.code}.device)",
    )


def device_of_module(target: Target, module: nn.Module) -> Answer:
    """A model has no device: its tensors have."""
    counts = Counter(device_id(tensor.device) for tensor in (*module.parameters(), *module.buffers()))
    words = "A module has no .device: every parameter and buffer has its own. "
    if not counts:
        title = f"{target.title} is on no device"
        words += "This one has neither, so it works wherever its input is."
    elif len(counts) == 1:
        title = f"{target.title} is on {next(iter(counts))}"
        words += (
            "All of them are on one device here, so asking the first parameter is enough; for a model in parts it would"
            " not be."
        )
    else:
        title = f"{target.title} is on {len(counts)} devices"
        words += "They are on several here, so asking the first parameter alone would mislead."
    facts = tuple(Fact(where, count_text(count, "tensor")) for where, count in sorted(counts.items()))
    code = f"print({{str(parameter.device) for parameter in {target.code()}.parameters()}})"
    return Answer(title=title, words=words, facts=facts, code=code, subject=target.name)


OF_TENSORS = {
    "type": type_of_tensor,
    "numpy": numpy,
    "cpu-numpy": cpu_numpy,
    "item": item,
    "tolist": tolist,
    "is-leaf": is_leaf,
    "device": device_of_tensor,
}
OF_MODELS = {"type": type_of_module, "device": device_of_module}
CALLS = {"item": "item()", "tolist": "tolist()", "numpy": "numpy()", "cpu-numpy": "cpu().numpy()", "type": "type()"}
"""What each question is in Python, behind the tensor."""
WITHOUT_VALUES = ("device", "is-leaf")
"""What a lazy parameter can answer before its first forward."""


def ask(workspace: Workspace, command: Ask, progress: ProgressMonitor) -> CommandResult:
    """The answer to one question; changes nothing. Raises `BadInput` where there is nothing to ask, or no such
    question."""
    if command.question not in OF_TENSORS:
        raise BadInput(f"there is no question '{command.question}'; there are {', '.join(OF_TENSORS)}")
    target = workspace.find(command.target)
    if isinstance(target.thing, nn.Module):
        if command.question in OF_MODELS:
            return CommandResult(OF_MODELS[command.question](target, target.thing))
        path = next((path for path, _ in target.parameters()), None)
        hint = f"; ask one of its parameters, for example '{target.name}:{path}'" if path else ""
        raise BadInput(f"'{command.target}' is a module, and '{command.question}' is a question for a tensor{hint}")
    return CommandResult(_of_tensor(workspace, command, target))


def _of_tensor(workspace: Workspace, command: Ask, target: Target) -> Answer:
    tensor = target.tensor
    if is_uninitialised(tensor) and command.question not in WITHOUT_VALUES:
        raise BadInput(
            f"'{command.target}' has no shape and no values before its first forward; run the model once, then ask"
            " again"
        )
    asked = AskedTensor(command.target, target.code(), tensor, workspace)
    try:
        return OF_TENSORS[command.question](asked)
    except DevExplorerError:
        raise
    # of a kind of tensor that can be in a model and answers next to nothing: sparse, quantised, without values
    except Exception as error:
        layout = str(tensor.layout).removeprefix("torch.")
        why = (
            f"It is {layout}, {str(tensor.dtype).removeprefix('torch.')}, and not every tensor can answer every"
            " question."
        )
        return asked.refused(CALLS.get(command.question, command.question), error, why)


# A tensor that is asked one of Python's questions, and the answers to it.


class AskedTensor(NamedTuple):
    """A tensor that is being asked."""

    target: str
    """As the user wrote it."""
    code: str
    """The tensor in Python."""
    tensor: Tensor
    workspace: Workspace

    @property
    def device(self) -> str:
        """Where it is."""
        return device_id(self.tensor.device)

    @property
    def simulated(self) -> bool:
        """Whether it is on a virtual GPU."""
        return any(info.id == self.device and info.simulated for info in self.workspace.registry.infos())

    def answer(
        self,
        title: str,
        words: str,
        *facts: tuple[str, str],
        code: str,
        failed: bool = False,
        offers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer; `offers` are labels of buttons and the questions that they ask of the same tensor."""
        return Answer(
            title=title,
            words=words,
            facts=tuple(Fact(*fact) for fact in facts),
            code=code,
            subject=object_name(self.target),
            failed=failed,
            offers=tuple(
                Offer(label, Ask(target=self.target, question=question)) for label, question in (offers or {}).items()
            ),
        )

    def refused(
        self, call: str, error: Exception, why: str, *facts: tuple[str, str], offers: Mapping[str, str] | None = None
    ) -> Answer:
        """Python raised: the answer says what, and why; its code shows the same error without ending a script."""
        kind, question = type(error).__name__, f"{self.code}.{call}"
        return self.answer(
            f"{self.target}.{call} raises {kind}",
            f"{kind}: {first_line(error)}. {why}",
            ("exception", kind),
            ("device", self.device),
            *facts,
            code=f"try:\n    print({question})\nexcept {kind} as _error:\n    print(_error)",
            failed=True,
            offers=offers,
        )
