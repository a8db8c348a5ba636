"""One entry of torch's operator database on the CPU and on a virtual GPU, sample by sample. Runs in a child of
`run.py`.

Writes a line of JSON with all cases, `[[entry, dtype], …]`; then reads one case per line and writes the result, until
its input ends. Both sides get the same values in the same layout and the same seed, so random numbers are the same too.
Where they differ by more than torch.testing allows, a third run in double precision shows whether the virtual GPU is as
close to it as the CPU."""

from __future__ import annotations

import itertools
import json
import random
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from devexplorer.core.virtual.backend import VirtualTensor, add_virtual_gpus, backward_guard

VGPU = "vgpu:0"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "complex64": torch.complex64, "int64": torch.int64}
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
"""They return uninitialised memory: shape, layout and dtype are compared, values are not."""
MEMORY_LIMIT = 6 << 30
"""Bytes of address space of this process."""


DOUBLE = {torch.float16: torch.float64, torch.float32: torch.float64, torch.complex64: torch.complex128}
LAZY = (torch.float32, torch.complex64)
"""dtypes whose arguments are also given as negative and as conjugate views."""
LOOSE = 8
"""As near as the CPU: off by at most this many times as much, or this many times the dtype's resolution."""


class Refused(Exception):
    """This sample cannot be put on a virtual GPU."""


def seed(number: int) -> None:
    """The same random numbers from here on."""
    torch.manual_seed(number)
    random.seed(number)


def placed(value: Any, device: str, *, double: bool, lazy: bool) -> Any:
    """A copy of a sample's argument there, in the same layout, storage offset included; `device="cpu"` names that
    device."""
    if double and isinstance(value, torch.dtype):
        return DOUBLE.get(value, value)
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise Refused(f"a tensor of {value.layout} in the sample")
        whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage()).clone().to(device)
        whole = whole.to(DOUBLE.get(value.dtype, value.dtype)) if double else whole
        copy = whole.as_strided(value.shape, value.stride(), value.storage_offset())
        copy = copy.conj() if value.is_conj() else copy
        copy = torch._neg_view(copy) if value.is_neg() else copy
        if lazy and value.is_complex():
            copy = copy.conj_physical().conj()
        elif lazy and value.is_floating_point():
            copy = torch._neg_view(copy.neg())
        return copy.detach().requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) or value == "cpu":
        return device
    return value


class Side:
    """One device's run of one sample: its arguments, and the result of each phase."""

    def __init__(self, sample: Any, device: str, number: int, *, double: bool = False, lazy: bool = False) -> None:
        self.device, self.number = device, number
        given = (sample.input, sample.args, sample.kwargs)
        self.input, self.args, self.kwargs = tree_map(
            lambda value: placed(value, device, double=double, lazy=lazy), given
        )
        flat = tree_flatten((self.input, self.args, self.kwargs))[0]
        self.tensors = [value for value in flat if isinstance(value, torch.Tensor)]
        self.leaves = [value for value in self.tensors if value.requires_grad]

    def call(self, function: Callable[..., Any], *more: Any, **options: Any) -> Any:
        """The operation on these arguments, after the seed."""
        seed(self.number)
        return function(*more or (self.input,), *self.args, **self.kwargs, **options)

    def gradients(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], *, create_graph: bool
    ) -> list[torch.Tensor | None]:
        """Of a weighted sum of the outputs; the weights are the same on every device."""
        seed(self.number + 1)
        drawn = [
            torch.randn(one.shape, dtype=torch.complex64 if one.is_complex() else torch.float32) for one in outputs
        ]
        weights = [weight.to(one.device, one.dtype) for weight, one in zip(drawn, outputs, strict=True)]
        with backward_guard() if self.device == VGPU else nullcontext():
            found = torch.autograd.grad(
                outputs, inputs, weights, create_graph=create_graph, retain_graph=True, allow_unused=True
            )
        return list(found)


def differentiable(result: Any) -> list[torch.Tensor]:
    """The tensors of a result that have a gradient."""
    return [one for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor) and one.requires_grad]


def forward(op: Any, side: Side) -> Any:
    """The result, shared memory with the arguments, and the arguments afterwards."""
    result = side.call(op.op)
    return (
        result,
        [shares(one, side.tensors) for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor)],
        changed(side),
    )


def inference(op: Any, side: Side) -> Any:
    """The same with inference mode on."""
    with torch.inference_mode():
        return forward(op, side)


def gradient(op: Any, side: Side) -> Any:
    """Of every argument that requires one."""
    return side.gradients(differentiable(side.call(op.op)), side.leaves, create_graph=False)


def lazy_views(op: Any, side: Side) -> Any:
    """The result and gradients where the arguments have the same values as conjugate views, or as negative ones."""
    result = side.call(op.op)
    outputs = differentiable(result)
    return (
        result,
        changed(side),
        side.gradients(outputs, side.leaves, create_graph=False) if outputs and side.leaves else None,
    )


def second(op: Any, side: Side) -> Any:
    """The gradient of the gradient."""
    first = side.gradients(differentiable(side.call(op.op)), side.leaves, create_graph=True)
    again = [one for one in first if one is not None and one.requires_grad]
    return side.gradients(again, side.leaves, create_graph=False) if again else None


def in_place(op: Any, side: Side) -> Any:
    """The in-place variant on a copy, with its gradient."""
    changed_one = side.input.clone()
    result = side.call(op.inplace_variant, changed_one)
    gradients = side.gradients([result], side.leaves, create_graph=False) if result.requires_grad else None
    return result is changed_one, changed_one, changed_one._version, gradients


def into(op: Any, side: Side) -> Any:
    """`out=` with tensors that have to grow, and with tensors of the right shape in another layout."""
    with torch.no_grad():
        expected = side.call(op.op)
        single = isinstance(expected, torch.Tensor)
        wanted = [expected] if single else list(expected)
        empty = [one.new_empty(0) for one in wanted]
        strided = [torch.zeros((*one.shape, 2), dtype=one.dtype, device=one.device)[..., 1] for one in wanted]
        answers = [side.call(op.op, out=given[0] if single else tuple(given)) for given in (empty, strided)]
    same = [answer is given[0] if single else True for answer, given in zip(answers, (empty, strided), strict=True)]
    return same, empty, strided


def shares(tensor: torch.Tensor, others: list[torch.Tensor]) -> list[bool]:
    """The other tensors with which it shares memory."""
    return [inner(tensor).untyped_storage()._cdata == inner(other).untyped_storage()._cdata for other in others]


def inner(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU's tensor that holds the values."""
    return tensor._inner if type(tensor) is VirtualTensor else tensor


def changed(side: Side) -> list[Any]:
    """The arguments after the operation: their values, and how often they were written to."""
    return [(one.detach(), None if one.is_inference() else one._version) for one in side.tensors]


def outcome(phase: Callable[[Any, Side], Any], op: Any, side: Side) -> tuple[str, Any]:
    """The outcome: a value, or the type and message of the error."""
    try:
        return "value", phase(op, side)
    except Exception as error:
        return type(error).__name__, str(error).strip().split("\n")[0][:200]


def difference(cpu: Any, vgpu: Any, *, values: bool, gradients: bool) -> str | None:
    """How two results differ; None if they agree, "close" if only the last bits differ."""
    flat, shape = tree_flatten(cpu)
    other, other_shape = tree_flatten(vgpu)
    if len(flat) != len(other) or (shape != other_shape and type(cpu) is type(vgpu)):
        return f"another structure: {other_shape} instead of {shape}"
    found: list[str] = []
    for one, two in zip(flat, other, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
            found.append(unlike(one, two, values=values, gradients=gradients) or "")
        elif isinstance(one, torch.Tensor) or isinstance(two, torch.Tensor):
            zeros = two is None and not (one.abs() > 1e-6).any()
            found.append("None instead of zeros" if zeros else f"{type(two).__name__} instead of {type(one).__name__}")
        elif one != two and not (one != one and two != two) and not (one == "cpu" or isinstance(one, torch.device)):
            found.append(f"{two!r} instead of {one!r}")
    return next((one for one in found if one not in ("", "close")), "close" if "close" in found else None)


OF_GRADIENTS = ("layout", "shape", "dtype", "strides")
"""The compared properties of a gradient; whether it is a view or lazily conjugated depends on the formula."""


def facts(tensor: torch.Tensor) -> dict[str, Any]:
    """The properties of a tensor except its values."""
    plain = tensor.layout is torch.strided
    return {
        "layout": tensor.layout, "shape": tuple(tensor.shape), "dtype": tensor.dtype,
        "requires_grad": tensor.requires_grad,
        "conj": tensor.is_conj(), "neg": tensor.is_neg(), "view": tensor._is_view(), "inference": tensor.is_inference(),
        "strides": tensor.stride() if plain and tensor.numel() > 1 else None,
        "storage offset": tensor.storage_offset() if plain and tensor.numel() > 0 else None,
    }  # fmt: skip


def unlike(cpu: torch.Tensor, vgpu: torch.Tensor, *, values: bool, gradients: bool) -> str | None:
    """How two tensors differ; "close" if only the last bits do."""
    if vgpu.device.type == "cpu" and cpu.numel() > 1:
        return "result on the CPU"
    expected, got = facts(cpu), facts(vgpu)
    for name, wanted in expected.items():
        if got[name] != wanted and (name in OF_GRADIENTS or not gradients):
            return f"{name} {got[name]} instead of {wanted}"
    if not values:
        return None
    a, b = plain(cpu), plain(vgpu)
    try:
        torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        try:
            torch.testing.assert_close(b, a, equal_nan=True)
        except AssertionError as error:
            return (
                "values: "
                + " ".join(line for line in str(error).split("\n") if line.startswith(("Greatest abs", "Mismatched")))[
                    :160
                ]
            )
        return "close"
    return None


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The values on the CPU, without lazy bits, dense."""
    values = inner(tensor.detach()).resolve_conj().resolve_neg()
    return values if values.layout is torch.strided else values.to_dense()


def as_near(cpu: Any, vgpu: Any, exact: Any) -> bool:
    """Whether the virtual GPU is as close to the result in double precision as the CPU: both round, in different
    ways."""
    results = [
        [plain(one) for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor)]
        for result in (cpu, vgpu, exact)
    ]
    if len({len(result) for result in results}) > 1:
        return False
    for a, b, truth in zip(*results, strict=True):
        if not (truth.is_floating_point() or truth.is_complex()):
            continue
        finite = truth.isfinite() & a.isfinite()
        if not torch.equal(a.isfinite(), b.isfinite()) or a.shape != truth.shape:
            return False
        if finite.any():
            wanted = truth[finite]
            allowed = (a[finite] - wanted).abs().max() + torch.finfo(a.dtype).eps * wanted.abs().max()
            if (b[finite] - wanted).abs().max() > LOOSE * allowed:
                return False
    return True


def phases(op: Any, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[Any, Side], Any]]]:
    """What is compared of this entry."""
    yield "forward", forward
    yield "inference mode", inference
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
        yield "gradient", gradient
        if op.supports_gradgrad:
            yield "second gradient", second
    if dtype in LAZY:
        yield "lazy views", lazy_views
    if op.inplace_variant is not None:
        yield "in-place", in_place
    if op.supports_out:
        yield "out=", into


def examine(op: Any, dtype: torch.dtype, most: int) -> dict[str, Any]:
    """Every phase of an entry in one dtype: how many samples agree in which way, and how the others differ."""
    counts: dict[str, Counter[str]] = {}
    differences: dict[str, dict[str, int]] = {}
    for name, phase in phases(op, dtype):
        seed(0)
        counted = counts[name] = Counter()
        differentiated = name in ("gradient", "second gradient", "lazy views", "in-place") and op.supports_autograd
        requires_grad = differentiated and dtype in op.supported_backward_dtypes("cpu")
        for number, sample in enumerate(
            itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), most)
        ):
            if name == "in-place" and (sample.broadcasts_input or not isinstance(sample.input, torch.Tensor)):
                continue
            try:
                sides = [Side(sample, device, 100 * number, lazy=name == "lazy views") for device in ("cpu", VGPU)]
            except Refused:
                counted["not dense"] += 1
                continue
            (kind, cpu), (other, vgpu) = (outcome(phase, op, side) for side in sides)
            if kind == other == "value":
                found = difference(
                    cpu, vgpu, values=op.name not in UNINITIALISED, gradients="gradient" in name or name == "lazy views"
                )
                if found is not None and found.startswith("values"):
                    way, exact = outcome(phase, op, Side(sample, "cpu", 100 * number, double=True))
                    found = "rounded" if way == "value" and as_near(cpu, vgpu, exact) else found
            elif kind == other:
                counted["same error"] += 1
                continue
            else:
                words = {"value": "a value"}
                found = f"{words.get(other, f'{other}: {vgpu}')} instead of {words.get(kind, f'{kind}: {cpu}')}"
            agrees = found in (None, "close", "rounded")
            counted[(found or "equal") if agrees else "different"] += 1
            if not agrees:
                seen = differences.setdefault(name, {})
                seen[found] = seen.get(found, 0) + 1
    return {"counts": counts, "differences": differences}


def main() -> None:
    """Serve cases until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    add_virtual_gpus("A100-SXM4-80GB")
    entries = {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}
    most = int(sys.argv[1])
    cases = [
        [name, key]
        for name, op in entries.items()
        for key, kind in DTYPES.items()
        if kind in op.supported_dtypes("cpu")
    ]
    print(json.dumps(cases), flush=True)
    for line in sys.stdin:
        name, dtype = json.loads(line)
        try:
            found = examine(entries[name], DTYPES[dtype], most)
        except Exception as error:  # of the database's own making of samples
            found = {"counts": {}, "differences": {}, "failed": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
