"""The Python that does what the files' commands do: lines that run in a script after those of earlier actions. Pure,
jobs thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from devexplorer.core.base import expression, quoted, variable
from devexplorer.core.files.manifest import SEPARATOR
from devexplorer.core.files.records import ListFile, LoadCheckpoint, Save
from devexplorer.core.virtual.device.accounting import KIND

if TYPE_CHECKING:
    from devexplorer.core.files.save import Gathered, Item

_TORCH = "import torch"
TENSORS, STATE, OWN = "_tensors", "_state", "_own"
"""Variables of the lines' own: no object has such a name in Python."""
READ = "from devexplorer import tensors  # torch.load would need more than weights_only=True"


def where(path: str) -> str:
    """A path as Python: `~` is the shell's, and Python's functions do not know it."""
    return quoted(str(Path(path).expanduser()) if path.startswith("~") else path)


def save(command: Save, gathered: Gathered) -> str:
    """The lines that write the same values."""
    path = where(command.path)
    if command.form == "module":
        return f"{_TORCH}\n\ntorch.save({expression(command.targets[0])}, {path})"
    if command.form == "pt":
        saved = ""
        for item in gathered.items:
            saved += f"    {quoted(item.name)}: {_saved(item)},\n"
        saved = f"{{\n{saved}}}"
        if len(gathered.items) == 1:
            saved = _saved(gathered.items[0])
        return f"{_TORCH}\n\ntorch.save({saved}, {path})"
    metadata = {"format": "pt", **gathered.ties}
    kept = ", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in metadata.items())
    parts = ",\n        ".join(filter(None, (_safe(item, gathered) for item in gathered.items)))
    return (
        f"from safetensors.torch import save_file\n\nsave_file(\n    {{\n        {parts},\n    }},\n    {path},\n"
        f"    metadata={{{kept}}},\n)"
    )


def _tensor(item: Item) -> str:
    """A tensor as Python: one of a model through the module that holds it."""
    name, _, path = item.target.partition(":")
    holder, _, last = path.rpartition(".")
    if holder:
        name = f"{name}:{holder}"
    if last:
        return f"getattr({expression(name)}, {quoted(last)}).detach()"
    return f"{expression(name)}.detach()"


def _safe(item: Item, gathered: Gathered) -> str:
    """What one item adds to the dict that `save_file` gets; empty: nothing."""
    host = ".cpu().clone().contiguous()"
    if isinstance(item.thing, Tensor):
        return "" if item.name in gathered.ties else f"{quoted(item.name)}: {_tensor(item)}{host}"
    prefix = "" if gathered.plain else f"{item.name}{SEPARATOR}"
    left = [key for key in item.tensors if f"{prefix}{key}" in gathered.ties] + list(item.about.waiting)
    only = f" if key not in {left!r}" if left else ""
    key = f"{quoted(prefix)} + key" if prefix else "key"
    return f"**{{{key}: value{host} for key, value in {expression(item.target)}.state_dict().items(){only}}}"


def _saved(item: Item) -> str:
    on_virtual = any(tensor.device.type == KIND for tensor in item.tensors.values())
    if isinstance(item.thing, Tensor):
        return _tensor(item) + (".cpu()" if on_virtual else "")
    state = f"{expression(item.target)}.state_dict()"
    return f"{{key: value.cpu() for key, value in {state}.items()}}" if on_virtual else state


def listed(command: ListFile, form: str) -> str:
    """The lines that print what is in a file."""
    path = where(command.path)
    if form == "npy":
        reading = f'np.load({path}, mmap_mode="r", allow_pickle=False)'
        return f"import numpy as np\n\n_array = {reading}\nprint(_array.shape, _array.dtype)"
    if form == "pt":
        return f'{_TORCH}\n\nprint(torch.load({path}, map_location="meta", weights_only=True))'
    if form == "safetensors":
        return (
            f'from safetensors import safe_open\n\nwith safe_open({path}, framework="pt") as _file:\n'
            "    for _key in _file.keys():\n"
            "        print(_key, _file.get_slice(_key).get_dtype(), _file.get_slice(_key).get_shape())"
        )
    return f"{READ}\n\nfor _key, _value in tensors({path}).items():\n    print(_key, getattr(_value, 'shape', ''))"


def source(path: str, form: str, device: str) -> tuple[str, str]:
    """Imports, and the expression that loads the whole file to a device."""
    name = where(path)
    if form == "npy":
        return f"import numpy as np\n{_TORCH}", f"torch.from_numpy(np.load({name}, allow_pickle=False)){to(device)}"
    if form == "pt":
        return _TORCH, f"torch.load({name}, map_location={quoted(device)}, weights_only=True)"
    if form != "safetensors":
        return READ, f"tensors({name})"
    on = "" if device.startswith(KIND) else f", device={quoted(device)}"  # it knows torch's own devices only
    return "from safetensors.torch import load_file", f"load_file({name}{on})"


def to(device: str) -> str:
    """What brings a tensor of the CPU there."""
    return "" if device == "cpu" else f".to({quoted(device)})"


def index(place: Iterable[Any]) -> str:
    """`["model"]["0.weight"]`."""
    return "".join(f"[{quoted(part) if isinstance(part, str) else repr(part)}]" for part in place)


def loaded(path: str, form: str, device: str, bound: Sequence[tuple[str, str]]) -> str:
    """`bound` are names and the rest of the expression that each one is; the first index of a whole file is empty."""
    imports, whole = source(path, form, device)
    rest = ""
    if form in ("pickle", "sharded") or (form == "safetensors" and device.startswith(KIND)):
        rest = to(device)
    if len(bound) == 1:
        ((name, below),) = bound
        return f"{imports}\n\n{variable(name)} = {whole}{below}{rest}"
    return "\n".join([imports, "", f"{TENSORS} = {whole}", *assignments(bound, rest)])


def assignments(bound: Sequence[tuple[str, str]], rest: str) -> list[str]:
    """A line for each name: an earlier name that means the same tensor, or the tensor in the file."""
    lines = []
    for name, below in bound:
        value = below if below.isidentifier() else f"{TENSORS}{below}{rest}"
        lines.append(f"{variable(name)} = {value}")
    return lines


def checkpoint(
    command: LoadCheckpoint, form: str, container: tuple[Any, ...], prefix: str, tied: dict[str, str], fitting: bool
) -> str:
    """The lines that load a state dict; `container` is where it is in the file, `prefix` what only the file's keys
    begin with."""
    imports, whole = source(command.path, form, "cpu")
    model = expression(command.target)
    lines = [imports, "", f"{STATE} = {whole}{index(container)}"]
    if prefix:
        only = f" if key.startswith({quoted(prefix)})" if prefix.endswith(SEPARATOR) else ""
        lines.append(f"{STATE} = {{key.removeprefix({quoted(prefix)}): value for key, value in {STATE}.items(){only}}}")
    for key, kept in tied.items():
        lines.append(f"{STATE}[{quoted(key)}] = {STATE}[{quoted(kept)}]")
    if fitting:
        lines.append(f"{OWN} = {model}.state_dict()")
        same = f"key in {OWN} and value.shape == {OWN}[key].shape"
        lines.append(f"{STATE} = {{key: value for key, value in {STATE}.items() if {same}}}")
    return "\n".join([*lines, f"{model}.load_state_dict({STATE}, strict={not command.partial})"])
