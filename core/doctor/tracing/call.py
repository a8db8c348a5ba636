"""One call of a torch function as the rules look at it, the forward that it is part of, and what it has made. The
thread that is watched.

What a function is to the rules is worked out once per function, from its name.

`torch.Tensor(3)`, `torch.FloatTensor` and `torch.from_numpy` are no calls that a mode sees; globals and variables of
closures were made before. For those the user's own line is read for the name that the operand has there; the source is
never executed.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from devexplorer.core import virtual
from devexplorer.core.base import writes_in_place
from devexplorer.core.doctor.code import fixes
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.tracing.sources import Origin, Sources
from devexplorer.core.isolation.source_location import SourceLocation, kind_of, library_of, place_of
from devexplorer.core.models import expressions_at, last_name, named_modules, tree_of

DEPTH, ITEMS = 4, 1000
"""How deep, and how far, lists of operands are searched."""


def tensors(values: Any, depth: int = 0) -> Iterator[Tensor]:
    """Every tensor in nested lists, tuples and dicts."""
    if isinstance(values, Tensor):
        yield values
    elif depth < DEPTH and isinstance(values, (list, tuple)):
        for value in values[:ITEMS]:
            yield from tensors(value, depth + 1)
    elif depth < DEPTH and type(values) is dict:
        for value in list(values.values())[:ITEMS]:
            yield from tensors(value, depth + 1)


def operands(args: Any, kwargs: Any) -> list[Tensor]:
    """Those of a call, each once, in their order."""
    return list({id(tensor): tensor for tensor in tensors((args, kwargs))}.values())


FACTORIES = fixes.FACTORIES | {
    "asarray", "complex_", "empty_permuted", "empty_strided", "from_file", "from_numpy", "frombuffer", "kaiser_window",
    "normal", "polar_", "range", "scalar_tensor", "sparse_coo_tensor",
}  # fmt: skip
"""Functions of `torch` that make a tensor on the default device unless another one is named."""
COPIES = frozenset({
    "to", "cpu", "cuda", "xpu", "mps", "copy_", "tensor", "as_tensor", "asarray", "new_tensor", "type", "type_as",
    "__setitem__",
})  # fmt: skip
"""Methods that may end on another device than they began."""
CASTS = frozenset({
    "to", "type", "float", "double", "half", "bfloat16", "type_as", "copy_",
})  # fmt: skip
"""A dtype that was asked for explicitly."""
CHECKS = frozenset({
    "inverse", "linalg_inv", "linalg_cholesky", "linalg_solve", "linalg_lu_factor", "linalg_ldl_factor",
    "cholesky_inverse", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh", "linalg_svd",
    "linalg_svdvals", "linalg_pinv", "linalg_lstsq", "linalg_matrix_exp", "linalg_matrix_rank", "linalg_cond",
    "linalg_tensorinv", "linalg_tensorsolve", "matrix_exp", "pinverse", "svd",
})  # fmt: skip
"""Linear algebra whose kernels report errors in a tensor, which the host reads (`_linalg_check_errors`)."""
WAITS = {
    "item": "item()", "tolist": "tolist()", "numpy": "numpy()", "__array__": "numpy()", "cpu": "cpu()",
    "to": "to('cpu')",
    "type": "type()", "type_as": "type_as()",
    "__bool__": "bool()", "is_nonzero": "bool()", "__int__": "int()", "__index__": "int()", "__long__": "int()",
    "__float__": "float()", "__complex__": "complex()", "__contains__": "`in`", "__format__": "a format",
    "__repr__": "repr()",
    "nonzero": "nonzero()", "argwhere": "argwhere()", "where": "where()", "unique": "unique()",
    "unique_consecutive": "unique_consecutive()", "equal": "equal()", "masked_select": "masked_select()",
    "repeat_interleave": "repeat_interleave()", "__getitem__": "an index", "__setitem__": "an index",
    "allclose": "allclose()",
    "bincount": "bincount()", "copy_": "copy_()", "arange": "arange()", "full": "full()", "tensor": "torch.tensor()",
    "as_tensor": "torch.as_tensor()", "asarray": "torch.asarray()", "linspace": "linspace()",
    "one_hot": "one_hot(), which looks for the largest", "histc": "histc(), which looks for its limits",
    **dict.fromkeys(CHECKS, "a check of this result for errors"),
}  # fmt: skip
"""What can make the host wait for the device, and what it is called in a sentence."""
OPERATORS = {
    "add": "addition", "sub": "subtraction", "rsub": "subtraction", "mul": "multiplication", "matmul": "matrix product",
    "div": "division", "true_divide": "division", "__rsub__": "subtraction", "__rdiv__": "division",
    "__rtruediv__": "division",
    "__rmatmul__": "matrix product", "__rpow__": "power", "__pow__": "power", "__getitem__": "indexing",
    "__setitem__": "assignment to a slice", "add_": "addition in place", "sub_": "subtraction in place",
    "mul_": "multiplication in place", "div_": "division in place", "gt": "comparison", "lt": "comparison",
    "ge": "comparison",
    "le": "comparison", "__eq__": "comparison", "eq": "comparison", "ne": "comparison", "__ne__": "comparison",
}  # fmt: skip
VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
"""Attributes of a tensor that make another one."""
_CONVERSIONS = frozenset({
    "__bool__", "__int__", "__index__", "__float__", "__complex__", "__len__", "__iter__", "__hash__", "__dir__", "dim",
    "size",
    "stride",
})  # fmt: skip


@dataclass(slots=True)
class FunctionKind:
    """One torch function."""

    name: str
    """`softmax`, `__getitem__`."""
    description: str
    """`torch.zeros`, `nn.functional.softmax`, `.expand()`, `the addition`."""
    factory: bool = False
    copies: bool = False
    casts: bool = False
    waits: bool = False
    asks: bool = False
    """It only asks something of a tensor (`shape`, `dim()`), and makes none."""
    loss: bool = False
    writes: bool = False
    """Its first argument is what it changes."""

    @property
    def sentence(self) -> str:
        """At the beginning of a sentence."""
        return (
            self.description[:1].upper() + self.description[1:]
            if self.description.startswith("the ")
            else self.description
        )


DATA = FunctionKind(name="data", description=".data")
"""`x.data`."""


def kind_of_function(func: Any) -> FunctionKind:
    """Work it out."""
    name = str(getattr(func, "__name__", "") or type(func).__name__)
    attribute = str(getattr(getattr(func, "__self__", None), "__name__", "")) if name == "__get__" else ""
    if attribute in VIEWS:
        return FunctionKind(name=attribute, description=f".{attribute}")
    owner = getattr(func, "__objclass__", None)
    method = owner is not None or str(getattr(func, "__qualname__", "")).startswith(
        ("Tensor.", "VirtualTensor.", "TensorBase.")
    )
    plain = not method and str(getattr(func, "__module__", "") or "").split(".")[0] == "torch"
    return FunctionKind(
        name=name,
        description=_description(func, name, method),
        factory=plain and name in FACTORIES,
        copies=name in COPIES,
        casts=name in CASTS,
        waits=name in WAITS,
        asks=name in ("__get__", "__set__", "__delete__") or (name in _CONVERSIONS and name not in WAITS),
        loss="loss" in name or name in ("cross_entropy", "kl_div", "binary_cross_entropy", "ctc_loss"),
        writes=writes_in_place(name),
    )


def _description(func: Any, name: str, method: bool) -> str:
    if method and name in OPERATORS:
        return f"the {OPERATORS[name]}"
    if method:
        return f".{name}()" if not name.startswith("__") else f"the {name.strip('_')}"
    module = str(getattr(func, "__module__", "") or "torch")
    if "functional" in module or module.startswith("torch._C._nn"):
        return f"nn.functional.{name}"
    return f"torch.{name}" if module.split(".")[0] == "torch" else name


OPS = torch._ops.__file__
BELOW = tuple(
    os.path.join(os.path.dirname(virtual.__file__), name)
    for name in ("backend.py", "device" + os.sep, "operators" + os.sep, "torch_api" + os.sep)
)
"""Virtual GPUs, which compute with torch themselves; the emulation of CUDA beside them passes calls of the model on."""
_TORCH = os.path.dirname(torch.__file__) + os.sep
_PASSED = (torch.overrides.__file__, torch._tensor.__file__, OPS)
"""Between a call and the function that is called."""
_PUBLIC = (torch.functional.__file__, torch._jit_internal.__file__)
"""Where functions that ask for dispatch are spread over several frames: `torch.unique`."""


class WatchedRun:
    """The run that is watched, which all rules share: who is at work, where everything should be, and where findings
    go."""

    def __init__(self, device: torch.device, collector: FindingCollector, sources: Sources) -> None:
        self.device = device
        """Where the module at work belongs: where the model was moved, or the card of a replica of DataParallel."""
        self.in_replica = False
        """Whether a replica is at work."""
        self.collector = collector
        self.sources = sources
        self.irregular = False
        """Whether there are tensors that a virtual GPU cannot hold."""
        self.wide = False
        """Whether the model or its inputs are float64: that was asked for."""
        self.doubles: dict[SourceLocation, tuple[str, str]] = {}
        """Lines at which forward makes float64 -> the module at work, and the call at the beginning of a sentence."""
        self.until: FrameType | None = None
        """The frame that watches: what is further out is none of the model's."""

    @property
    def path(self) -> str:
        """The module at work."""
        return self.collector.path


class Call:
    """A call that was made, or that failed."""

    __slots__ = ("_library", "_operands", "_place", "args", "frame", "kind", "kwargs", "read", "run")

    def __init__(
        self, run: WatchedRun, kind: FunctionKind, args: Any, kwargs: Any, frame: FrameType, *, read: bool = False
    ) -> None:
        self.run, self.kind, self.args, self.kwargs, self.frame = run, kind, args, kwargs, frame
        self.read = read
        """Whether the host read a value of a virtual GPU in it."""
        self._operands: list[Tensor] | None = None
        self._place: tuple[SourceLocation | None] | None = None
        self._library: tuple[SourceLocation | None] | None = None

    @property
    def operands(self) -> list[Tensor]:
        """Its tensors, nested ones too."""
        if self._operands is None:
            self._operands = operands(self.args, self.kwargs)
        return self._operands

    @property
    def place(self) -> SourceLocation | None:
        """The user's line."""
        if self._place is None:
            self._place = (place_of(self.frame, self.run.until),)
        return self._place[0]

    @property
    def where(self) -> SourceLocation | None:
        """The line that does it: of an installed library where one is at work below the user's line."""
        return self.library or self.place

    @property
    def library(self) -> SourceLocation | None:
        """The line of an installed library that is at work below the user's; None where there is none."""
        if self._library is None:
            self._library = (library_of(self.frame, self.run.until),)
        return self._library[0]

    @property
    def non_blocking(self) -> bool:
        """Whether a copy between devices does not wait."""
        return bool(self.kwargs.get("non_blocking")) or any(item is True for item in self.args[1:3])

    @property
    def users_frame(self) -> FrameType | None:
        """The frame that is at the user's line."""
        place = self.place
        frame: FrameType | None = self.frame
        while place is not None and frame is not None:
            if frame.f_lineno == place.line and os.path.abspath(frame.f_code.co_filename) == place.file:
                return frame
            frame = frame.f_back
        return None

    def written(self, path: str) -> str | None:
        """A parameter or buffer of the model as the user's line could write it: `self.blocks[0].weight`; None where
        that line cannot."""
        frame = self.users_frame
        owner = None if frame is None else self.run.sources.paths.get(id(frame.f_locals.get("self")))
        if owner is None or (owner and not path.startswith(f"{owner}.")):
            return None
        below = path.removeprefix(f"{owner}.") if owner else path
        return "self." + re.sub(r"\.(\d+)(?=\.)", r"[\1]", below)

    @property
    def by_torch(self) -> bool:
        """Whether it is torch's own code that calls, below the user's line: `nn.Transformer` that looks at its mask."""
        frame: FrameType | None = self.frame
        dispatched = False
        while frame is not None and (frame.f_code.co_filename in _PASSED or frame.f_code.co_filename.startswith(BELOW)):
            dispatched = frame.f_code.co_filename == torch.overrides.__file__
            frame = frame.f_back
        if (
            frame is not None and dispatched and frame.f_code.co_name == self.kind.name
        ):  # the public function, which asked for dispatch
            frame = frame.f_back
        while dispatched and frame is not None and frame.f_code.co_filename in _PUBLIC:
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


Rule = Callable[[Call, Any], None]
"""Looks at a call that was made, and at its result."""


class Repair(NamedTuple):
    """A call that failed for where its operands are, in a way that works."""

    args: Any
    kwargs: Any
    """With which the rules look at it."""
    repeated: Callable[[Any], Any]
    """Calls the function so."""
    note: Callable[[], None]
    """Reports what was wrong."""
    on_host: bool = False
    """Whether the call cannot be made on a virtual GPU at all."""


class Histories(Protocol):
    """Follows what autograd knows of tensors through a run: `doctor.gradients`."""

    def tracing(self, until: FrameType | None) -> AbstractContextManager[None]:
        """The run; `until` is the frame that watches."""
        ...

    def switch(self, on: bool, frame: FrameType) -> None:
        """Gradients are about to be switched on or off."""
        ...

    def after(self, call: Call, result: Any) -> None:
        """A call was made in forward."""
        ...

    def output(self, value: Any) -> None:
        """The model has returned this."""
        ...

    def backward(self, roots: Sequence[Tensor]) -> None:
        """A backward from these is about to begin."""
        ...

    def drop(self, *tensors: Tensor) -> None:
        """Nothing may refer to these weakly now."""
        ...


_TYPED = ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool", "BFloat16")
UNSEEN = frozenset({"from_numpy", "frombuffer", "Tensor", *(f"{kind}Tensor" for kind in _TYPED)})
"""Functions of `torch` that make a tensor on the CPU and that are not seen."""


def unseen(call: Call, tensor: Tensor) -> Origin | None:
    """What the user's line says about an operand of the call; None where it says nothing."""
    place, frame = call.place, call.users_frame
    if frame is None or place is None:
        return None
    body = _body(frame.f_code)
    if body is None:
        return None
    for name in _names(body, place.line):
        if frame.f_locals.get(name) is tensor:
            made = _made(body, name, place)
            if made is not None:
                return Origin("factory", path=call.run.path, op=made[0], place=made[1])
            if name not in frame.f_code.co_varnames:
                return _variable(call, name, tensor)
        elif frame.f_globals.get(name) is tensor:
            return _variable(call, name, tensor)
    written = [_made_by(node) for node in expressions_at(body, place.line)]
    op = next((op for op in written if op is not None), None)
    return None if op is None else Origin("factory", path=call.run.path, op=op, place=place)


def _variable(call: Call, name: str, tensor: Tensor) -> Origin:
    known = call.run.sources.of(tensor)
    return Origin("variable", path=name, op=known.op, place=known.place)


@lru_cache(maxsize=256)
def _body(code: CodeType) -> ast.AST | None:
    """The syntax tree of the innermost function that has this code, its lines as in the file."""
    tree = None if kind_of(code.co_filename) == "skipped" else tree_of(code.co_filename)
    if tree is None:
        return None
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        and min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))]) == code.co_firstlineno
    ]
    return inside[-1] if inside else None


def _names(body: ast.AST, line: int) -> list[str]:
    return list(dict.fromkeys(node.id for node in expressions_at(body, line) if isinstance(node, ast.Name)))


def _made(body: ast.AST, name: str, before: SourceLocation) -> tuple[str, SourceLocation] | None:
    """The last assignment to the name above the line, where it is one of those that are not seen."""
    found: tuple[str, SourceLocation] | None = None
    for node in ast.walk(body):
        if (
            isinstance(node, ast.Assign)
            and node.lineno < before.line
            and any(isinstance(item, ast.Name) and item.id == name for item in node.targets)
        ):
            op = next((op for op in map(_made_by, ast.walk(node.value)) if op is not None), None)
            if op is not None and (found is None or node.lineno > found[1].line):
                found = op, before._replace(line=node.lineno)
    return found


def _made_by(node: Any) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    name = last_name(node.func)
    return f"torch.{name}" if name in UNSEEN else None


MOST = 64
"""Results of one call that are noted."""
_PASSED_ON = ("computed", "factory", "attribute", "hidden", "input", "copy", "variable", "held")
"""Kinds of origins that are to blame for what is computed from them on the wrong device."""

_FOR_THE_HOST = ("_pack_padded_sequence", "_pad_packed_sequence")
"""What they return on the CPU is there on every device, wherever their arguments were made."""


def note_results(call: Call, result: Any) -> None:
    """Remember every new tensor among the results."""
    if isinstance(result, Tensor):
        _note(call, result)
    elif isinstance(result, (tuple, list)):
        for item in result[:MOST]:
            if isinstance(item, Tensor):
                _note(call, item)


def _note(call: Call, tensor: Tensor) -> None:
    given = call.operands
    if any(tensor is item for item in given):
        return
    sources, kind = call.run.sources, call.kind
    if kind.factory and not (kind.name == "normal" and given):  # with a tensor as its mean it draws where that is
        named = call.kwargs.get("device") is not None
        origin = Origin("factory", path=call.run.path, op=kind.description, place=call.where, named_device=named)
        made = _module_made(call)
        if made is not None:
            origin = replace(origin, op=made[0], place=made[1], of_module=True)
        elif not named:
            _note_dtypes(call, tensor)
        sources.note(tensor, origin)
        return
    cast = _cast(call, tensor, given)
    if tensor.device == call.run.device or kind.name in _FOR_THE_HOST:
        sources.note(tensor, Origin("result", path=call.run.path, op=kind.description, cast=cast))
        return
    there = [item for item in given if item.device == tensor.device]
    if not there and given and kind.copies:
        sources.note(tensor, Origin("copy", path=call.run.path, op=kind.description, place=call.where, cast=cast))
        return
    known = sources.known(there[0]) or unseen(call, there[0]) if there else None
    if known is not None and known.kind in _PASSED_ON:
        others = (origin for origin in map(sources.known, there[1:]) if origin is not None)
        beside = known.beside.union(*(origin.operands for origin in others if origin.kind in _PASSED_ON))
        sources.note(tensor, replace(sources.placed(known, there[0]), derived=True, beside=beside, cast=cast))
        return
    sources.note(tensor, Origin("result", path=call.run.path, op=kind.description, place=call.where, cast=cast))


def _note_dtypes(call: Call, tensor: Tensor) -> None:
    """Remember which tensors are floating where a factory makes a floating one that names no dtype: the dtype of one of
    them is what it should have, also once the model is cast."""
    frame, place = call.users_frame, call.place
    if frame is None or place is None or call.library is not None:
        return
    if not tensor.is_floating_point() or call.kwargs.get("dtype") is not None:
        call.run.collector.note_other_dtype(place)
        return
    names = {name for name, item in frame.f_locals.items() if isinstance(item, Tensor) and item.is_floating_point()}
    module = frame.f_locals.get("self")
    if isinstance(module, nn.Module) and call.run.collector.floating(place) is None:  # these do not change in a run
        names |= set(_floating_of(module))
    call.run.collector.note_floating(place, names)


def _floating_of(module: nn.Module) -> Iterator[str]:
    """The floating parameters and buffers of a module, as its methods write them."""
    parameters: list[Tensor] = []
    for path, part in named_modules(module, "self"):
        parameters += [item for item in part._parameters.values() if item is not None]
        for name, item in (*part._parameters.items(), *part._buffers.items()):
            if item is not None and item.is_floating_point():
                yield f"{path}.{name}"
    if parameters and parameters[0].is_floating_point():
        yield "next(self.parameters())"


def _module_made(call: Call) -> tuple[str, SourceLocation | None] | None:
    """`nn.LayerNorm`, or the user's class, where it is a module's own constructor that makes the tensor, and the line
    that makes that module: of modules within each other the outermost, which is what can be moved."""
    frame: FrameType | None = call.frame
    outermost: FrameType | None = None
    while frame is not None and frame is not call.run.until:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), nn.Module):
            outermost = frame
        frame = frame.f_back
    if outermost is None:
        return None
    kind, until = type(outermost.f_locals["self"]), call.run.until
    name = f"nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.") else kind.__name__
    return name, library_of(outermost.f_back, until) or place_of(outermost.f_back, until)


def _cast(call: Call, tensor: Tensor, given: list[Tensor]) -> bool:
    """Whether this dtype was asked for, here or where an operand was made."""
    dtype = tensor.dtype
    if not dtype.is_floating_point:
        return False
    if given and (call.kwargs.get("dtype") is not None or (call.kind.casts and dtype is not given[0].dtype)):
        return True
    for item in given:
        if item.dtype is dtype:
            known = call.run.sources.known(item)
            if known is not None and known.cast:
                return True
    return False
