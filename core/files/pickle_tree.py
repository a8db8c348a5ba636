"""Reads the pickle of a torch.save file without running it: a tree of tensors, containers and plain values. Pure, jobs
thread.

`pickletools` takes the opcodes apart; here they build symbols. A name that the pickle asks for
(`torch._utils._rebuild_tensor_v2`, `posix.system`) stays a name: nothing is imported and nothing called. What asks for
a name that tensors do not need is refused with that name, before `torch.load(weights_only=True)` gets to see the file;
and tensors that would not fit their storage are too.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from devexplorer.core.base import BadInput

STEPS_LIMIT = 5_000_000
"""Opcodes of one pickle: that of 50,000 tensors has a million and a half."""
_CONTAINERS = {"collections.OrderedDict", "collections.Counter"}
_VALUES = {"torch.Size", "torch.device", "builtins.set", "__builtin__.set", "builtins.complex", "__builtin__.complex"}
_STORAGES: dict[str, torch.dtype | None] = {
    "UntypedStorage": None,
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16, "CharStorage": torch.int8,
    "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64, "ComplexDoubleStorage": torch.complex128,
}  # fmt: skip
"""What torch.save calls the storage of a tensor of that dtype; newer dtypes have untyped ones."""
_REBUILD = {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"}
_PARAMETER = {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"}
_FROM_TYPE = "torch._tensor._rebuild_from_type_v2"
_SPECIAL = {
    "torch._utils._rebuild_sparse_tensor": "sparse",
    "torch._utils._rebuild_qtensor": "quantised",
    "torch._utils._rebuild_nested_tensor": "nested",
    "torch._utils._rebuild_meta_tensor_no_storage": "without values (on the device meta)",
}
_KNOWN = (
    _CONTAINERS
    | _VALUES
    | _REBUILD
    | _PARAMETER
    | _SPECIAL.keys()
    | {_FROM_TYPE, "_codecs.encode", "torch.Tensor", "torch.nn.parameter.Parameter"}
)
"""What tensors need; dtypes and storages come on top."""


class Name(NamedTuple):
    """Something that the pickle refers to by module and name."""

    full: str


class Foreign(NamedTuple):
    """What calling a name would have made, had it been called."""

    full: str


class Storage(NamedTuple):
    """A storage in the file."""

    key: str
    dtype: torch.dtype | None
    """None: it is untyped, and every tensor says its own."""
    location: str
    elements: int


class Stored(NamedTuple):
    """A tensor: a view of a storage."""

    storage: Storage
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool


class Tree(NamedTuple):
    """What a pickle holds."""

    root: Any
    foreign: tuple[str, ...]
    """Names that only code needs."""
    is_module: bool
    """It is, or holds, a whole `nn.Module`."""


def read(data: bytes) -> Tree:
    """The tree; raises any exception for a damaged pickle, `BadInput` for one that says what tensors cannot be."""
    return _Machine().run(data)


def names_in(data: bytes) -> tuple[list[str], int]:
    """Every name that a pickle, of whatever protocol, asks for, as far as it can be read; and its length, 0 when it has
    no end."""
    found: dict[str, None] = {}
    memo: dict[int, str] = {}
    strings: list[str] = [""]
    try:
        for opcode, argument, position in pickletools.genops(data):
            if opcode.name == "STOP":
                return list(found), (position or 0) + 1
            number = argument if isinstance(argument, int) else -1
            if opcode.name in ("GLOBAL", "INST"):
                found[".".join(str(argument).split(" ", 1))] = None
            elif opcode.name == "STACK_GLOBAL":
                found[".".join(strings[-2:])] = None
            elif opcode.name.startswith("EXT"):
                found[f"the extension {argument}"] = None
            elif opcode.name == "MEMOIZE":
                memo[len(memo)] = strings[-1]
            elif "PUT" in opcode.name:
                memo[number] = strings[-1]
            elif "GET" in opcode.name and number in memo:
                strings.append(memo[number])
            elif isinstance(argument, str):
                strings.append(argument)
    except Exception:  # damaged or cut off: what was found until then is returned
        pass
    return list(found), 0


class _Machine:
    """The stack machine of the pickle format, with symbols."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.foreign: dict[str, None] = {}
        self.module = False

    def run(self, data: bytes) -> Tree:
        """Every opcode up to STOP."""
        for step, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if step > STEPS_LIMIT:
                raise BadInput(f"its pickle has more than {STEPS_LIMIT:,} steps")
            if opcode.name == "STOP":
                return Tree(self.stack.pop(), tuple(self.foreign), self.module)
            self._step(opcode.name, argument)
        raise EOFError

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        match name:
            case "PROTO":
                if argument != 2:
                    raise BadInput(
                        f"it was written with pickle protocol {argument}; torch.save's own is 2, and torch.load wants"
                        " that"
                    )
            case "GLOBAL":
                stack.append(self._name(".".join(argument.split(" ", 1))))
            case "MARK":
                self.below.append(stack)
                self.stack = []
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "BININT" | "BININT1" | "BININT2" | "BINFLOAT" | "BINUNICODE" | "SHORT_BINSTRING" | "LONG1":
                self.module |= argument == "_parameters"
                stack.append(argument)
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_SET":
                stack.append({"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}[name]())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "TUPLE":
                items = self._since_mark()
                self.stack.append(tuple(items))
            case "APPEND" | "APPENDS":
                items = [stack.pop()] if name == "APPEND" else self._since_mark()
                if not isinstance(self.stack[-1], Foreign):
                    list.extend(self.stack[-1], items)
            case "SETITEM" | "SETITEMS":
                items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self._since_mark()
                if not isinstance(self.stack[-1], Foreign):
                    dict.update(self.stack[-1], zip(items[::2], items[1::2], strict=True))
            case "REDUCE" | "NEWOBJ":
                arguments = stack.pop()
                stack[-1] = self._made(stack[-1], arguments, new=name == "NEWOBJ")
            case "BUILD":
                stack.pop()
                if not isinstance(stack[-1], (Foreign, dict)):
                    raise _bad_call("__setstate__")
            case "BINPERSID":
                stack[-1] = self._storage(stack[-1])
            case _:
                raise BadInput(f"its pickle has the opcode {name}, which torch.save does not write")

    def _since_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.below.pop()
        return items

    def _name(self, full: str) -> Name:
        module, _, last = full.rpartition(".")
        dtype = module == "torch" and isinstance(vars(torch).get(last), torch.dtype)
        storage = module in ("torch", "torch.cuda", "torch.storage") and last in _STORAGES
        if not (dtype or storage or full in _KNOWN):
            self.foreign[full] = None
        return Name(full)

    def _made(self, what: Any, arguments: Any, *, new: bool) -> Any:
        """What calling `what` would give."""
        full = what.full if isinstance(what, Name) else "a value"
        if isinstance(what, Foreign) or full in self.foreign:
            return Foreign(full)
        if new or not isinstance(what, Name) or not isinstance(arguments, tuple):
            raise _bad_call(full)
        if full in _SPECIAL:
            raise BadInput(f"a tensor in it is {_SPECIAL[full]}; only dense tensors can be loaded")
        if full in _CONTAINERS:
            return dict(*arguments)
        if full in _REBUILD:
            return _stored(arguments, full.endswith("_v3"))
        if full in _PARAMETER:
            return arguments[0]._replace(requires_grad=bool(arguments[1]))
        if full == _FROM_TYPE:
            return self._made(arguments[0], arguments[2], new=False)
        if full == "_codecs.encode" and arguments[1:] == ("latin1",):  # how protocol 2 writes bytes
            return str(arguments[0]).encode("latin1")
        if full in _VALUES:
            return ("value", *arguments)
        raise _bad_call(full)

    def _storage(self, reference: Any) -> Any:
        kind, what, key, location, elements = reference
        if kind != "storage" or not isinstance(what, Name) or type(elements) is not int or elements < 0:
            raise BadInput("it refers to something outside that is no storage")
        dtype = _STORAGES[what.full.rpartition(".")[2]]
        return Storage(str(key), dtype, str(location), elements)


def _bad_call(full: str) -> BadInput:
    return BadInput(f"it calls {full} in a way that torch.save does not")


def _stored(arguments: tuple[Any, ...], typed: bool) -> Stored:
    storage, offset, shape, stride, requires_grad = arguments[:5]
    shape, stride = (tuple(item[1] if item and item[0] == "value" else item) for item in (shape, stride))
    dtype = torch_dtype(arguments[6]) if typed else storage.dtype
    if any(type(number) is not int for number in (offset, *shape, *stride)):
        raise BadInput("the shape of a tensor in it is not a shape")
    return Stored(storage, dtype, offset, shape, stride, bool(requires_grad))


def torch_dtype(name: Name) -> torch.dtype:
    """The dtype of that name."""
    dtype = vars(torch)[name.full.rpartition(".")[2]]
    assert isinstance(dtype, torch.dtype)
    return dtype


DEPTH_LIMIT = 40
NODES_LIMIT = 2_000_000


def leaves(root: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every tensor and plain value below the root with the indices that lead to it."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), root)]
    seen = 0
    while waiting:
        place, thing = waiting.pop()
        seen += 1
        if len(place) > DEPTH_LIMIT or seen > NODES_LIMIT:
            raise BadInput("its containers are nested too deeply, or in themselves")
        if isinstance(thing, (dict, list, tuple)) and not isinstance(thing, (Stored, Storage, Name, Foreign)):
            items = list(thing.items() if isinstance(thing, dict) else enumerate(thing))
            waiting += [((*place, key), value) for key, value in reversed(items) if isinstance(key, (str, int))]
        else:
            yield place, thing
