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
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core import virtual
from devexplorer.core.base import writes_in_place
from devexplorer.core.doctor.code import fixes
from devexplorer.core.doctor.code.syntax import calls_at, nodes
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.tracing.sources import Origin, Sources
from devexplorer.core.isolation.source_location import NOWHERE, SourceLocation, frames, kind_of, library_of, place_of
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
        if self.description.startswith("the "):
            return f"The {self.description[4:]}"
        return self.description


DATA = FunctionKind(name="data", description=".data")
"""`x.data`."""


def kind_of_function(func: Any) -> FunctionKind | None:
    """Work it out; None for a function without a hash, or with a name that raises."""
    try:
        return _kind(func)
    except Exception:
        return None


@lru_cache(maxsize=4096)
def _kind(func: Any) -> FunctionKind:
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

    def __init__(self, run: WatchedRun, kind: FunctionKind, args: Any, kwargs: Any, frame: FrameType) -> None:
        self.run, self.kind, self.args, self.kwargs, self.frame = run, kind, args, kwargs, frame
        self.read = False
        """Whether the host read a value of a virtual GPU in it."""

    @property
    def first(self) -> Any:
        """Its first argument."""
        return self.args[0] if self.args else None

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its position or its name."""
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)

    @cached_property
    def operands(self) -> list[Tensor]:
        """Its tensors, nested ones too."""
        return operands(self.args, self.kwargs)

    @cached_property
    def place(self) -> SourceLocation | None:
        """The user's line."""
        return place_of(self.frame, self.run.until)

    @property
    def where(self) -> SourceLocation | None:
        """The line that does it: of an installed library where one is at work below the user's line."""
        return self.library or self.place

    @cached_property
    def library(self) -> SourceLocation | None:
        """The line of an installed library that is at work below the user's; None where there is none."""
        return library_of(self.frame, self.run.until)

    @property
    def non_blocking(self) -> bool:
        """Whether a copy between devices does not wait."""
        return bool(self.kwargs.get("non_blocking")) or any(item is True for item in self.args[1:3])

    @property
    def users_frame(self) -> FrameType | None:
        """The frame that is at the user's line."""
        place = self.place or NOWHERE
        for frame in frames(self.frame):
            if place[:2] == (os.path.abspath(frame.f_code.co_filename), frame.f_lineno):
                return frame
        return None

    def written(self, path: str) -> str | None:
        """A parameter or buffer of the model as the user's line could write it: `self.blocks[0].weight`; None where
        that line cannot."""
        frame = self.users_frame
        owner = None if frame is None else self.run.sources.paths.get(id(frame.f_locals.get("self")))
        if owner is None or (owner and not path.startswith(f"{owner}.")):
            return None
        return "self." + re.sub(r"\.(\d+)(?=\.)", r"[\1]", path.removeprefix(f"{owner}."))

    @property
    def by_torch(self) -> bool:
        """Whether it is torch's own code that calls, below the user's line: `nn.Transformer` that looks at its mask."""
        dispatched = False
        for frame in frames(self.frame):
            file = frame.f_code.co_filename
            if file in _PASSED or file.startswith(BELOW):
                dispatched = file == torch.overrides.__file__
            elif not dispatched or (file not in _PUBLIC and frame.f_code.co_name != self.kind.name):
                return file.startswith(_TORCH)
            elif not file.startswith(_TORCH):
                return False
        return False


Rule = Callable[[Call, Any], None]
"""Looks at a call that was made, and at its result."""


class Repair(NamedTuple):
    """A call that failed for where its operands are, in a way that works."""

    args: Any
    kwargs: Any
    """With which the rules look at it."""
    note: Callable[[], None]
    """Reports what was wrong."""
    instead: Callable[[Any], Any] | None = None
    """Calls the function in another way than with these."""
    on_host: bool = False
    """Whether the call cannot be made on a virtual GPU at all."""

    def repeated(self, func: Any) -> Any:
        """What the function gives so."""
        return func(*self.args, **self.kwargs) if self.instead is None else self.instead(func)


_TYPED = ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool", "BFloat16")
UNSEEN = frozenset({"from_numpy", "frombuffer", "Tensor", *(f"{kind}Tensor" for kind in _TYPED)})
"""Functions of `torch` that make a tensor on the CPU and that are not seen."""


def unseen(call: Call, tensor: Tensor) -> Origin | None:
    """What the user's line says about an operand of the call; None where it says nothing."""
    place, frame = call.place, call.users_frame
    if frame is None or place is None or kind_of(frame.f_code.co_filename) == "skipped":
        return None
    tree = tree_of(frame.f_code.co_filename)
    if tree is None:
        return None
    here = list(expressions_at(tree, place.line))
    for name in dict.fromkeys(ast.unparse(node) for node in here if isinstance(node, ast.Name)):
        if frame.f_locals.get(name, frame.f_globals.get(name)) is not tensor:
            continue
        if name in frame.f_code.co_varnames:
            for node in sorted(nodes(tree, ast.Assign), key=lambda node: -node.lineno):
                above = frame.f_code.co_firstlineno < node.lineno < place.line
                if above and name in map(ast.unparse, node.targets) and (op := _made_by(nodes(node, ast.Call))):
                    return Origin("factory", path=call.run.path, op=op, place=place._replace(line=node.lineno))
        else:
            known = call.run.sources.of(tensor)
            return Origin("variable", path=name, op=known.op, place=known.place)
    op = _made_by(calls_at(tree, place.line))
    return Origin("factory", path=call.run.path, op=op, place=place) if op else None


def _made_by(calls: Sequence[ast.Call]) -> str:
    """The first of these that is not seen; empty: none is."""
    for call in calls:
        name = last_name(call.func)
        if name in UNSEEN:
            return f"torch.{name}"
    return ""


MOST = 64
"""Results of one call that are noted."""
_PASSED_ON = ("computed", "factory", "attribute", "hidden", "input", "copy", "variable", "held")
"""Kinds of origins that are to blame for what is computed from them on the wrong device."""

_FOR_THE_HOST = ("_pack_padded_sequence", "_pad_packed_sequence")
"""What they return on the CPU is there on every device, wherever their arguments were made."""


def note_results(call: Call, result: Any) -> None:
    """Remember every new tensor among the results."""
    results = result[:MOST] if isinstance(result, (tuple, list)) else (result,)
    for item in results:
        if isinstance(item, Tensor):
            _note(call, item)


def _note(call: Call, tensor: Tensor) -> None:
    given = call.operands
    if any(tensor is item for item in given):
        return
    sources, kind, path = call.run.sources, call.kind, call.run.path
    if kind.factory and not (kind.name == "normal" and given):  # with a tensor as its mean it draws where that is
        named = call.kwargs.get("device") is not None
        module = _module_made(call)
        if module is not None:
            op, place = module
            origin = Origin("factory", path, op=op, place=place, named_device=named, of_module=True)
        else:
            origin = Origin("factory", path, op=kind.description, place=call.where, named_device=named)
            if not named:
                _note_dtypes(call, tensor)
        sources.note(tensor, origin)
        return
    result = Origin("result", path, op=kind.description, cast=_cast(call, tensor))
    there = [item for item in given if item.device == tensor.device]
    if tensor.device != call.run.device and kind.name not in _FOR_THE_HOST:
        result = replace(result, place=call.where)
        known = sources.known(there[0]) or unseen(call, there[0]) if there else None
        if not there and given and kind.copies:
            result = replace(result, kind="copy")
        elif known is not None and known.kind in _PASSED_ON:
            beside = known.beside
            for item in there[1:]:
                other = sources.known(item)
                if other is not None and other.kind in _PASSED_ON:
                    beside |= other.operands
            result = replace(sources.placed(known, there[0]), derived=True, beside=beside, cast=result.cast)
    sources.note(tensor, result)


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
    outermost, until = None, call.run.until
    for frame in frames(call.frame, until):
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), nn.Module):
            outermost = frame
    if outermost is None:
        return None
    kind = type(outermost.f_locals["self"])
    name = f"nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.") else kind.__name__
    return name, library_of(outermost.f_back, until) or place_of(outermost.f_back, until)


def _cast(call: Call, tensor: Tensor) -> bool:
    """Whether this dtype was asked for, here or where an operand was made."""
    dtype, given = tensor.dtype, call.operands
    if not dtype.is_floating_point or not given:
        return False
    if call.kwargs.get("dtype") is not None or (call.kind.casts and dtype is not given[0].dtype):
        return True
    for item in given:
        known = call.run.sources.known(item)
        if item.dtype is dtype and known is not None and known.cast:
            return True
    return False
