"""What a torch function is to the rules, worked out once per function from its name. Pure; any thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FACTORIES = frozenset({
    "zeros", "ones", "empty", "full", "tensor", "as_tensor", "asarray", "scalar_tensor", "arange", "range", "eye",
    "linspace",
    "logspace", "rand", "randn", "randint", "randperm", "normal", "from_numpy", "frombuffer", "from_file",
    "tril_indices",
    "triu_indices", "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window",
    "empty_strided",
    "empty_permuted", "complex_", "polar_", "sparse_coo_tensor",
})  # fmt: skip
"""Functions of `torch` that make a tensor on the default device unless they are told another one."""
COPIES = frozenset({
    "to", "cpu", "cuda", "xpu", "mps", "copy_", "tensor", "as_tensor", "asarray", "new_tensor", "type", "type_as",
    "__setitem__",
})  # fmt: skip
"""Methods that may end on another device than they began."""
CASTS = frozenset({
    "to", "type", "float", "double", "half", "bfloat16", "type_as", "copy_",
})  # fmt: skip
"""A dtype that was asked for explicitly."""
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
class Kind:
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


DATA = Kind(name="data", description=".data")
"""`x.data`."""


def kind_of_function(func: Any) -> Kind:
    """Work it out."""
    name = str(getattr(func, "__name__", "") or type(func).__name__)
    attribute = str(getattr(getattr(func, "__self__", None), "__name__", "")) if name == "__get__" else ""
    if attribute in VIEWS:
        return Kind(name=attribute, description=f".{attribute}")
    owner = getattr(func, "__objclass__", None)
    method = owner is not None or str(getattr(func, "__qualname__", "")).startswith(
        ("Tensor.", "VirtualTensor.", "TensorBase.")
    )
    plain = not method and str(getattr(func, "__module__", "") or "").split(".")[0] == "torch"
    return Kind(
        name=name,
        description=_description(func, name, method),
        factory=plain and name in FACTORIES,
        copies=name in COPIES,
        casts=name in CASTS,
        waits=name in WAITS,
        asks=name in ("__get__", "__set__", "__delete__") or (name in _CONVERSIONS and name not in WAITS),
        loss="loss" in name or name in ("cross_entropy", "kl_div", "binary_cross_entropy", "ctc_loss"),
        writes=_writes(name),
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


def _writes(name: str) -> bool:
    inside = name.strip("_")
    return (
        inside == "setitem" or (name.startswith("__i") and inside != "invert")
        if name.startswith("__")
        else name.endswith("_")
    )
