"""Questions that bring values to Python: numpy(), cpu().numpy(), item(), tolist(). Runs on the jobs thread."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

import torch

from devexplorer.core.base import BadInput, bytes_text, count_text, seconds_text, shape_text
from devexplorer.core.experiments.asked import Asked
from devexplorer.core.models import dtype_name
from devexplorer.core.records import Answer
from devexplorer.core.workspace import Timing

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


def numpy(asked: Asked) -> Answer:
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


def _no_array(asked: Asked, error: Exception) -> Answer:
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


def cpu_numpy(asked: Asked) -> Answer:
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


def item(asked: Asked) -> Answer:
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


def tolist(asked: Asked) -> Answer:
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


def _timed(asked: Asked, call: Callable[[], Any]) -> tuple[Any, str]:
    """What the call returns, and its time on the clock of the device, in words."""
    timing = Timing(asked.workspace.registry, [asked.device])
    value = call()
    seconds, _ = timing.stop()
    return value, seconds_text(seconds, timing.simulated)
