"""Makes named tensors from a `NewTensor` command: checked first, allocated afterwards. Runs on the jobs thread."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from devexplorer.core.base import BadInput, DevExplorerError, Findings, first_line
from devexplorer.core.devices.backend import DeviceRegistry, parse_device
from devexplorer.core.models import Operand, dtype_name, operand, torch_dtype
from devexplorer.core.records import NewTensor
from devexplorer.core.workspace.plan import check_sizes

SHAPED = ("ones", "zeros", "rand", "randn", "arange")
"""Fills that take a shape."""
FILLS = (*SHAPED, "text", "file")
TEXT_LIMIT = 200_000
"""Characters of a literal."""
DIMENSIONS_LIMIT = 64
"""PyTorch's own limit."""


def try_gpu(registry: DeviceRegistry, index: int = 0) -> tuple[str, str | None]:
    """The accelerator with that number, or `cpu` and the reason."""
    found = accelerators(registry)
    if 0 <= index < len(found):
        return found[index], None
    there = f"there are {len(found)} ({', '.join(found)})" if found else "there is none"
    return "cpu", f"there is no GPU {index} here, {there}; the CPU is used instead"


def try_all_gpus(registry: DeviceRegistry) -> list[str]:
    """Every accelerator, or the CPU when there is none."""
    return accelerators(registry) or ["cpu"]


def accelerators(registry: DeviceRegistry) -> list[str]:
    """Every usable device that is not the CPU."""
    return [info.id for info in registry.infos() if info.usable and info.kind != "cpu"]


def choose_device(registry: DeviceRegistry, text: str, fall_back: bool) -> tuple[str, str | None]:
    """The device that `text` means; with `fall_back` the CPU, and the reason, when there is no such device."""
    if fall_back and parse_device(text) not in registry.usable():
        return "cpu", f"there is no device '{parse_device(text)}' here; the CPU is used instead"
    return registry.choose(text), None


def make(command: NewTensor, registry: DeviceRegistry) -> tuple[Tensor, str, str | None]:
    """The tensor, its device, and why that is not the one that was asked for.

    Everything that is wrong with the command is reported at once; nothing is allocated before it is known to fit.
    """
    findings = Findings()
    device, fell_back = findings.checked(lambda: choose_device(registry, command.device, command.fall_back), ("", None))
    dtype = findings.checked(lambda: None if command.dtype is None else torch_dtype(command.dtype))
    findings.add(*_wrong(command, dtype))
    findings.demand_none()
    try:
        if command.fill == "text":
            tensor = _from_text(command.text, dtype, device, registry)
        elif command.fill == "file":
            tensor = _from_file(Path(command.text), dtype, device, registry)
        else:
            tensor = _filled(command, dtype, device, registry)
    # a dtype that PyTorch cannot fill so, or memory that is gone after all
    except (RuntimeError, NotImplementedError) as error:
        raise BadInput(f"PyTorch refused: {first_line(error)}") from error
    return tensor.requires_grad_() if command.requires_grad else tensor, device, fell_back


def _wrong(command: NewTensor, dtype: torch.dtype | None) -> list[str]:
    """Everything that is wrong with the fill, the shape and the dtype."""
    if command.fill not in FILLS:
        return [f"there is no fill '{command.fill}'; there are {', '.join(FILLS)}"]
    findings = []
    if command.fill in SHAPED:
        findings += _wrong_shape(command.shape)
    if command.fill == "arange" and len(command.shape) > 1:
        findings.append("arange has one dimension; give one size")
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        if command.fill in ("rand", "randn"):
            findings.append(f"{command.fill} gives fractions, which {dtype_name(dtype)} cannot hold; take float32")
        if command.requires_grad:
            findings.append(f"only floating-point tensors can require a gradient, not {dtype_name(dtype)}")
    return findings


def _wrong_shape(shape: Sequence[int]) -> list[str]:
    findings = [f"a size of {size} is not possible; sizes are 1 or more" for size in shape if size < 1]
    if len(shape) > DIMENSIONS_LIMIT:
        findings.append(f"{len(shape)} dimensions are too many; PyTorch has at most {DIMENSIONS_LIMIT}")
    return findings


def _check_fits(shape: Sequence[int], dtype: torch.dtype, device: str, registry: DeviceRegistry) -> None:
    """Raise `DoesNotFit`, with the bytes, when a new tensor of this shape would not fit."""
    check_sizes([math.prod(shape) * dtype.itemsize], device, registry, "this tensor")


def _filled(command: NewTensor, dtype: torch.dtype | None, device: str, registry: DeviceRegistry) -> Tensor:
    shape = command.shape
    if command.fill == "arange":
        count = shape[0] if shape else 1
        if dtype is None:
            dtype = torch.float32 if command.requires_grad else torch.int64
        _check_fits((count,), dtype, device, registry)
        return torch.arange(count, dtype=dtype, device=device)
    dtype = dtype or torch.float32
    _check_fits(shape, dtype, device, registry)
    if command.fill in ("ones", "zeros"):
        return (torch.ones if command.fill == "ones" else torch.zeros)(shape, dtype=dtype, device=device)
    own = device if device.startswith("cuda") else "cpu"  # virtual GPUs have no generator: the CPU's numbers, moved
    draw = torch.rand if command.fill == "rand" else torch.randn
    generator = torch.Generator(device=own).manual_seed(command.seed)
    return draw(shape, dtype=dtype, device=own, generator=generator).to(device)


def _from_text(text: str, dtype: torch.dtype | None, device: str, registry: DeviceRegistry) -> Tensor:
    hint = "write numbers like [[1, 2], [3.5, 4]]"
    if len(text) > TEXT_LIMIT:
        raise BadInput(
            f"the text has {len(text):,} characters, {TEXT_LIMIT:,} is the most; put larger values in a .npy file"
        )
    try:
        values = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        raise BadInput(f"the text is not a list of numbers; {hint}") from None
    if not _numbers_only(values):
        raise BadInput(f"the text must hold numbers in lists, and no list may be empty; {hint}")
    try:
        tensor = torch.tensor(values, dtype=dtype)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = "the lists differ in length" if isinstance(error, ValueError) else first_line(error)
        raise BadInput(f"these numbers do not make a tensor: {reason}") from None
    _check_fits(tensor.shape, tensor.dtype, device, registry)
    return tensor.to(device)


def _numbers_only(values: Any, depth: int = 0) -> bool:
    if isinstance(values, (list, tuple)):
        return depth < DIMENSIONS_LIMIT and bool(values) and all(_numbers_only(value, depth + 1) for value in values)
    return isinstance(values, (bool, int, float, complex))


def _from_file(path: Path, dtype: torch.dtype | None, device: str, registry: DeviceRegistry) -> Tensor:
    array = read_array(path)
    kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
    _check_fits(array.shape, dtype or kind, device, registry)
    return torch.from_numpy(np.array(array)).to(device=device, dtype=dtype or kind)


def read_array(path: Path, known_as: str = "") -> np.ndarray[Any, Any]:
    """The array of a .npy file, mapped: sizes are known before anything is read. `BadInput` for what PyTorch could not
    have. `known_as`: the file in messages."""
    try:
        array = np.load(path.expanduser(), mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise BadInput(f"there is no file '{known_as or path}'") from None
    except (OSError, ValueError, EOFError) as error:
        reason = (
            "it holds Python objects, which are never loaded"
            if "object" in str(error).lower()
            else "it is not a .npy file of numbers"
        )
        raise BadInput(f"'{known_as or path}' cannot be loaded: {reason}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise BadInput(f"'{known_as or path}' is an archive of several arrays (.npz); choose a .npy file with one")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        torch.from_numpy(np.empty(0, array.dtype))
    except TypeError:
        raise BadInput(f"'{known_as or path}' holds {array.dtype}, for which PyTorch has no dtype") from None
    findings = _wrong_shape(array.shape)
    if findings:
        raise BadInput(f"'{known_as or path}' has the shape {array.shape}", *findings)
    return np.asarray(array)


# --- operators

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "@": operator.matmul,
}


class CombineFailed(DevExplorerError):
    """Two tensors cannot be combined; `mixed` when they are on different devices."""

    def __init__(self, message: str, *, left: Operand, right: Operand, dtypes: bool = False) -> None:
        super().__init__(message)
        self.left, self.right = left, right
        self.dtypes = dtypes
        """They could be if they had one dtype."""

    @property
    def mixed(self) -> bool:
        """Whether they are on different devices."""
        return self.left.device != self.right.device


def applied(sign: str, left: tuple[str, Tensor], right: tuple[str, Tensor]) -> Tensor:
    """The result for two named tensors; raises `CombineFailed` with where they are."""
    try:
        result: Tensor = OPERATORS[sign](left[1], right[1])
    except RuntimeError as error:
        dtypes = left[1].dtype != right[1].dtype and _shapes_fit(sign, left[1], right[1])
        raise CombineFailed(first_line(error), left=operand(*left), right=operand(*right), dtypes=dtypes) from error
    return result


def _shapes_fit(sign: str, *tensors: Tensor) -> bool:
    try:
        OPERATORS[sign](*(torch.empty(tensor.shape, device="meta") for tensor in tensors))
    except RuntimeError:
        return False
    return True
