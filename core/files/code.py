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
_LOAD_FILE = "from safetensors.torch import load_file"
READ = "from devexplorer import tensors  # torch.load would need more than weights_only=True"


def where(path: str) -> str:
    """A path as Python: `~` is the shell's, and Python's functions do not know it."""
    return quoted(str(Path(path).expanduser()) if path.startswith("~") else path)


def thing(target: str, tensor: bool) -> str:
    """A target as Python: a tensor in a model through the module that holds it."""
    name, _, path = target.partition(":")
    if not tensor or not path:
        return expression(target)
    holder, _, last = path.rpartition(".")
    return f"getattr({expression(f'{name}:{holder}' if holder else name)}, {quoted(last)})"


def save(command: Save, gathered: Gathered) -> str:
    """The lines that write the same values."""
    path = where(command.path)
    if command.form == "module":
        return f"{_TORCH}\n\ntorch.save({expression(command.targets[0])}, {path})"
    if command.form == "pt":
        values = [_saved(item) for item in gathered.items]
        if len(values) == 1:
            return f"{_TORCH}\n\ntorch.save({values[0]}, {path})"
        pairs = "".join(
            f"    {quoted(item.name)}: {value},\n" for item, value in zip(gathered.items, values, strict=True)
        )
        return f"{_TORCH}\n\ntorch.save({{\n{pairs}}}, {path})"
    parts = [part for item in gathered.items if (part := _safe(item, gathered))]
    metadata = "".join(f", {quoted(key)}: {quoted(kept)}" for key, kept in gathered.ties.items())
    imports = "from safetensors.torch import save_file"
    if gathered.plain:
        return f'{imports}\n\nsave_file({parts[0].removeprefix("**")}, {path}, metadata={{"format": "pt"{metadata}}})'
    lines = "".join(f"        {part},\n" for part in parts)
    return (
        f'{imports}\n\nsave_file(\n    {{\n{lines}    }},\n    {path},\n    metadata={{"format": "pt"{metadata}}},\n)'
    )


def _safe(item: Item, gathered: Gathered) -> str:
    """What one item adds to the dict that `save_file` gets; empty: nothing."""
    prefix = "" if gathered.plain else f"{item.name}{SEPARATOR}"
    host = ".detach().cpu().clone().contiguous()"
    if isinstance(item.thing, Tensor):
        return "" if item.name in gathered.ties else f"{quoted(item.name)}: {thing(item.target, True)}{host}"
    left = [key for key in item.tensors if f"{prefix}{key}" in gathered.ties] + list(item.about.waiting)
    only = f" if key not in ({', '.join(map(quoted, left))},)" if left else ""
    key = f"{quoted(prefix)} + key" if prefix else "key"
    return f"**{{{key}: value{host} for key, value in {expression(item.target)}.state_dict().items(){only}}}"


def _saved(item: Item) -> str:
    if isinstance(item.thing, Tensor):
        own = thing(item.target, True)
        return f"{own}.detach().cpu()" if item.thing.device.type == KIND else f"{own}.detach()"
    state = f"{expression(item.target)}.state_dict()"
    if any(tensor.device.type == KIND for tensor in item.tensors.values()):
        return f"{{key: value.cpu() for key, value in {state}.items()}}"
    return state


def listed(command: ListFile, form: str) -> str:
    """The lines that print what is in a file."""
    path = where(command.path)
    if form in ("pickle", "sharded"):
        return f"{READ}\n\nfor _key, _value in tensors({path}).items():\n    print(_key, getattr(_value, 'shape', ''))"
    if form == "npy":
        return (
            f'import numpy as np\n\n_array = np.load({path}, mmap_mode="r", allow_pickle=False)\nprint(_array.shape,'
            " _array.dtype)"
        )
    if form == "pt":
        return f'{_TORCH}\n\nprint(torch.load({path}, map_location="meta", weights_only=True))'
    return (
        f'from safetensors import safe_open\n\nwith safe_open({path}, framework="pt") as _file:\n    for _key in'
        " _file.keys():\n        print(_key, _file.get_slice(_key).get_dtype(), _file.get_slice(_key).get_shape())"
    )


def source(path: str, form: str, device: str) -> tuple[str, str]:
    """Imports, and the expression that loads the whole file to a device."""
    name = where(path)
    if form == "npy":
        return f"import numpy as np\n{_TORCH}", f"torch.from_numpy(np.load({name}, allow_pickle=False))" + to(device)
    if form in ("pickle", "sharded"):
        return READ, f"tensors({name})"
    if form == "pt":
        return _TORCH, f"torch.load({name}, map_location={quoted(device)}, weights_only=True)"
    if device.startswith(KIND):  # safetensors knows torch's own devices only
        return _LOAD_FILE, f"load_file({name})"
    return _LOAD_FILE, f"load_file({name}, device={quoted(device)})"


def to(device: str) -> str:
    """What brings a tensor of the CPU there."""
    return "" if device == "cpu" else f".to({quoted(device)})"


def index(place: Iterable[Any]) -> str:
    """`["model"]["0.weight"]`."""
    return "".join(f"[{quoted(part) if isinstance(part, str) else repr(part)}]" for part in place)


def loaded(path: str, form: str, device: str, bound: Sequence[tuple[str, str]]) -> str:
    """`bound` are names and the rest of the expression that each one is; the first index of a whole file is empty."""
    imports, whole = source(path, form, device)
    rest = to(device) if form in ("pickle", "sharded") or (form == "safetensors" and device.startswith(KIND)) else ""
    if len(bound) == 1 and not bound[0][1]:
        return f"{imports}\n\n{variable(bound[0][0])} = {whole}{rest}"
    if len(bound) == 1:
        return f"{imports}\n\n{variable(bound[0][0])} = {whole}{bound[0][1]}{rest}"
    return "\n".join([imports, "", f"{TENSORS} = {whole}", *assignments(bound, rest)])


def assignments(bound: Sequence[tuple[str, str]], rest: str) -> list[str]:
    """A line for each name: an earlier name that means the same tensor, or the tensor in the file."""
    return [
        f"{variable(name)} = {below if below.isidentifier() else f'{TENSORS}{below}{rest}'}" for name, below in bound
    ]


def checkpoint(
    command: LoadCheckpoint,
    form: str,
    container: tuple[Any, ...],
    prefix: str,
    tied: dict[str, str],
    fitting: bool,
) -> str:
    """The lines that load a state dict; `container` is where it is in the file, `prefix` what only the file's keys
    begin with."""
    imports, whole = source(command.path, form, "cpu")
    model = expression(command.target)
    steps = []
    if prefix:
        only = f" if key.startswith({quoted(prefix)})" if prefix.endswith(SEPARATOR) else ""
        steps.append(f"{STATE} = {{key.removeprefix({quoted(prefix)}): value for key, value in {STATE}.items(){only}}}")
    if tied:
        pairs = ", ".join(f"{quoted(key)}: {STATE}[{quoted(kept)}]" for key, kept in tied.items())
        steps.append(f"{STATE}.update({{{pairs}}})")
    if fitting:
        steps.append(f"{OWN} = {model}.state_dict()")
        same = f"key in {OWN} and value.shape == {OWN}[key].shape"
        steps.append(f"{STATE} = {{key: value for key, value in {STATE}.items() if {same}}}")
    if not steps:
        return f"{imports}\n\n{model}.load_state_dict({whole}{index(container)}, strict={not command.partial})"
    return "\n".join(
        [
            imports,
            "",
            f"{STATE} = {whole}{index(container)}",
            *steps,
            f"{model}.load_state_dict({STATE}, strict={not command.partial})",
        ]
    )
