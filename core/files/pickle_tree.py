"""Reads pickles without running them: a tree of tensors, containers and plain values. Pure, jobs thread.

A pickle is a program for a stack machine. `pickletools` takes it apart, and the machine here builds symbols: a name
that the pickle asks for (`torch._utils._rebuild_tensor_v2`, `posix.system`) stays a name, nothing is imported and
nothing called. What calling a name of others would have made is a `Foreign`; what tensors need is done here. Protocols
0 to 5, of Python 2 as well.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pickletools import genops
from typing import Any, BinaryIO

import numpy as np
import torch

from devexplorer.core.base import BadInput
from devexplorer.core.files.entries import DIMENSIONS_LIMIT, contiguous
from devexplorer.core.files.symbols import (
    NO_STORAGE,
    STORAGES,
    Array,
    Foreign,
    Name,
    Raw,
    Storage,
    Stored,
    Tree,
    checked,
    special,
    storage_dtype,
    stored,
)

STEPS_LIMIT = 20_000_000
"""Opcodes of one pickle: a tensor of a state dict takes about 33."""
LINE_LIMIT = 1 << 20
"""Bytes of a line, and of what is read without asking whether it is there."""

_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
}  # fmt: skip
"""Opcodes, by what the machine does: here it takes what `pickletools` has read."""
_BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_EMPTY: Mapping[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_SET": list}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARKED = {"TUPLE", "LIST", "DICT", "FROZENSET", "APPENDS", "ADDITEMS", "SETITEMS", "INST", "OBJ", "POP_MARK"}

_CONTAINERS = {"collections.OrderedDict", "collections.Counter", "collections.defaultdict", "builtins.dict"}
_LISTS = {"builtins.list", "builtins.tuple", "builtins.set", "builtins.frozenset", "collections.deque", "torch.Size"}
_PLAIN = {"builtins.complex", "builtins.bytearray", "torch.device", "torch.serialization._get_layout"}
_REBUILD = {f"torch._utils._rebuild_tensor{version}" for version in ("", "_v2", "_v3")}
_PARAMETER = {
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
}
_FROM_TYPE = "torch._tensor._rebuild_from_type_v2"
_FROM_CPU = "torch._utils._rebuild_device_tensor_from_cpu_tensor"
_SPECIAL = {
    "torch._utils._rebuild_sparse_tensor": "sparse",
    "torch._utils._rebuild_qtensor": "quantised",
    "torch._utils._rebuild_nested_tensor": "nested",
    "torch._utils._rebuild_meta_tensor_no_storage": "without values (on the device meta)",
    "torch._utils._rebuild_wrapper_subclass": "of a class that wraps other tensors",
}
_LOADED_BY_TORCH = {
    "torch.Size", "torch.Tensor", "_codecs.encode", "collections.OrderedDict", "collections.Counter", "builtins.set",
    _FROM_TYPE, _FROM_CPU, *_SPECIAL, *_REBUILD, *_PARAMETER, *_PLAIN,
}  # fmt: skip
_NUMPY = ("numpy.core.", "numpy._core.")
_NUMBERS = set("?bBhHiIlLqQefdFD") | {f"{kind}{size}" for kind in "biufc" for size in (1, 2, 4, 8, 16)}
"""NumPy's names for what can be a tensor."""
_DTYPES = {"S": "Bytes", "U": "Str", "V": "Void", "O": "Object", "M": "DateTime64", "m": "TimeDelta64"}
"""Its other kinds -> the class of their dtype."""


def read(file: BinaryIO, end: int, known: Mapping[Any, Any] | None = None) -> Tree:
    """The tree of the pickle that begins where `file` is, and that cannot go beyond `end`; the file is behind it
    afterwards. Raises any exception for a damaged pickle. `known`: what its persistent ids mean, where these are not
    descriptions of storages."""
    machine = _Machine(file, end, known)
    root = machine.run()
    never = [f"{full} with something in it" for full, made in machine.fillable if made]
    if machine.has_modules:
        never.insert(0, "whole model of the old format")
    names = tuple(machine.names)
    return Tree(root, names, tuple(filter(_beyond_torch, names)), tuple(never), machine.protocol, machine.storages)


def _beyond_torch(full: str) -> bool:
    module, _, last = full.rpartition(".")
    if full in _LOADED_BY_TORCH or (module in ("torch", "torch.cuda", "torch.storage") and last in STORAGES):
        return False
    return module != "torch" or not isinstance(vars(torch).get(last), torch.dtype | torch.qscheme)


class _Bounded:
    """A file for `pickletools`, in which a length that is not there takes no memory."""

    def __init__(self, file: BinaryIO, end: int) -> None:
        self._file, self._end = file, end

    def read(self, count: int) -> bytes:
        """All of them, or an error."""
        if count > LINE_LIMIT and count > self._end - self._file.tell():
            raise EOFError
        return self._file.read(count)

    def readline(self) -> bytes:
        """One that is no longer than any of a pickle's."""
        return self._file.readline(LINE_LIMIT)


class _Machine:
    """The stack machine of the pickle format, with symbols."""

    def __init__(self, file: BinaryIO, end: int, known: Mapping[Any, Any] | None) -> None:
        self.file, self.end, self.known = file, end, known
        self.memo: dict[Any, Any] = {}
        self.names: dict[str, None] = {}
        self.storages: dict[str, Storage] = {}
        self.fillable: list[tuple[str, dict[Any, Any] | list[Any]]] = []
        """Containers that `torch.load(weights_only=True)` makes where it is allowed to, and never fills."""
        self.has_modules = False
        """Whether it names classes of modules in the way of before torch 1.6."""
        self.protocol = 0
        self.left = 2 * (end - file.tell()) + 1000
        """Of what may be copied: a pickle can refer to a large thing a million times."""

    def run(self) -> Any:
        """Every opcode up to STOP."""
        memo = self.memo
        stack: list[Any] = []
        below: list[list[Any]] = []
        for step, (opcode, given, _) in enumerate(genops(_Bounded(self.file, self.end))):  # type: ignore[arg-type]
            name = opcode.name
            if name in _VALUES:
                stack.append(given)
            elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
                memo[given] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET", "GET"):
                stack.append(memo[given])
            elif name == "MARK":
                below.append(stack)
                stack = []
            elif name in _MARKED:
                items, stack = stack, below.pop()
                self._close(name, given, items, stack)
            elif name in _TUPLES:
                count = _TUPLES[name]
                stack[-count:] = [tuple(stack[-count:])]
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _EMPTY:
                stack.append(_EMPTY[name]())
            elif name in ("REDUCE", "NEWOBJ"):
                arguments = stack.pop()
                stack[-1] = self._made(stack[-1], arguments)
            else:
                self._rare(name, given, stack)
            if step >= STEPS_LIMIT:
                raise BadInput(f"its pickle has more than {STEPS_LIMIT:,} steps")
        return stack.pop()

    def _close(self, name: str, given: Any, items: list[Any], stack: list[Any]) -> None:
        """What an opcode does with the items since the mark."""
        if name == "TUPLE":
            stack.append(tuple(items))
        elif name in ("LIST", "FROZENSET"):
            stack.append(items)
        elif name == "DICT":
            stack.append({})
            _update(stack[-1], items)
        elif name == "SETITEMS":
            _update(stack[-1], items)
        elif name in ("APPENDS", "ADDITEMS"):
            _extend(stack[-1], items)
        elif name == "INST":
            stack.append(self._made(self._name(*given.split(" ", 1)), tuple(items)))
        elif name == "OBJ":
            stack.append(self._made(items[0], tuple(items[1:])))

    def _rare(self, name: str, given: Any, stack: list[Any]) -> None:
        match name:
            case "STOP" | "FRAME":
                pass
            case "PROTO":
                self.protocol = given
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "POP":
                stack.pop()
            case "DUP":
                stack.append(stack[-1])
            case "APPEND":
                item = stack.pop()
                _extend(stack[-1], [item])
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                _update(stack[-1], [key, value])
            case "GLOBAL":
                stack.append(self._name(*given.split(" ", 1)))
            case "STACK_GLOBAL":
                last, module = stack.pop(), stack.pop()
                stack.append(self._name(module, last))
            case "NEWOBJ_EX":
                stack.pop()
                arguments = stack.pop()
                stack[-1] = self._made(stack[-1], arguments)
            case "BUILD":
                state = stack.pop()
                self._built(stack[-1], state)
            case "PERSID":
                stack.append(self._persistent(given))
            case "BINPERSID":
                stack[-1] = self._persistent(stack[-1])
            case _ if name in _BYTES:
                end = self.file.tell()
                stack.append(Raw(end - len(given), end))
            case _:  # an extension, or a buffer outside
                raise BadInput(f"its pickle has the opcode {name}, which no file of tensors has")

    # --- what stands for what

    def _name(self, module: Any, last: Any) -> Name:
        if not isinstance(module, str) or not isinstance(last, str):
            raise BadInput("its pickle asks for a name that is no text")
        if module == "__builtin__":
            module = "builtins"
        full = f"{module}.{last}"
        self.names[full] = None
        return Name(full)

    def _made(self, what: Any, arguments: Any) -> Any:
        """What calling `what` would give."""
        if isinstance(what, Foreign):
            return Foreign(what.full)
        if not isinstance(what, Name) or not isinstance(arguments, tuple):
            raise BadInput("it calls a value in a way that torch.save does not")
        full = what.full
        if full in _REBUILD:
            return stored(arguments, full)
        if full in _CONTAINERS:
            return self._container(full, arguments)
        if full in _LISTS:
            return self._list(full, *arguments)
        if full in _PARAMETER:
            tensor = arguments[0]
            if isinstance(tensor, Stored):
                tensor = tensor._replace(requires_grad=bool(arguments[1]))
            return tensor
        if full == _FROM_TYPE:
            return self._made(arguments[0], arguments[2])
        if full == _FROM_CPU:
            return arguments[0]
        if full in _SPECIAL:
            return special(_SPECIAL[full], arguments)
        if full == "_codecs.encode" and arguments[1:] == ("latin1",):  # how protocol 2 writes bytes
            return self._encoded(arguments[0])
        if full == "torch.storage._load_from_bytes":
            return self._storage_in_bytes(arguments[0])
        if full == "numpy.dtype":
            return self._dtype(str(arguments[0]))
        if full.startswith(_NUMPY) and full.endswith("._reconstruct"):
            return Array()
        if full.startswith(_NUMPY) and full.endswith("._frombuffer"):
            data, dtype, shape, order = arguments
            return self._array(Array(), (1, shape, dtype, order == "F", data))
        if full in _PLAIN:
            return full
        return Foreign(full)

    def _built(self, what: Any, state: Any) -> None:
        if isinstance(what, Foreign):
            what.is_module = isinstance(state, dict) and "_parameters" in state
        elif isinstance(what, Array) and what.code:
            what.swapped = isinstance(state, tuple) and state[1:2] == (">",)
        elif isinstance(what, Array):
            self._array(what, state)

    def _dtype(self, code: str) -> Array:
        """`torch.load` wants the class of a dtype allowed, too."""
        kind = _DTYPES.get(code[:1])
        if code in _NUMBERS:
            self.names[f"numpy.dtypes.{type(np.dtype(code)).__name__}"] = None
        elif kind is not None:
            self.names[f"numpy.dtypes.{kind}DType"] = None
        return Array(code)

    def _array(self, array: Array, state: tuple[Any, ...]) -> Array:
        _, shape, dtype, fortran, source = state
        if len(shape) > DIMENSIONS_LIMIT or any(type(length) is not int for length in shape):
            raise BadInput("the shape of an array in it is not a shape")
        if isinstance(source, str):
            source = self._encoded(source)
        numbers = isinstance(dtype, Array) and dtype.code in _NUMBERS and not dtype.swapped
        if numbers and isinstance(source, Raw | bytes):
            kind = torch.from_numpy(np.empty(0, dtype.code)).dtype
            strides = contiguous(shape)
            if fortran:
                strides = contiguous(shape[::-1])[::-1]
            storage = Storage(f"array {id(array)}", kind, "cpu", _length(source) // kind.itemsize, source)
            array.stored = checked(storage, kind, 0, shape, strides)
        return array

    def _persistent(self, reference: Any) -> Any:
        if self.known is not None and isinstance(reference, tuple):  # the class of a module and its source
            return reference[0]
        if self.known is not None:
            return self.known[int(reference)]
        if reference[0] == "module":  # of old: the class of a module, and its source
            self.has_modules = True
            return reference[1]
        kind, what, key, location, elements = reference[:5]
        dtype = storage_dtype(what)
        if kind != "storage" or type(elements) is not int or elements < 0:
            raise BadInput(NO_STORAGE)
        view = 0
        if len(reference) > 5 and reference[5]:
            view = reference[5][1]
        if type(view) is not int or view < 0:
            raise BadInput("it refers to a part of a storage that is none")
        storage = Storage(str(key), dtype, str(location), elements, None, view)
        self.storages.setdefault(storage.key, storage)
        return storage

    def _storage_in_bytes(self, raw: Any) -> Storage:
        """How `pickle.dump` writes a storage: a file of torch.save, of the old format, in bytes."""
        back = self.file.tell()
        file, start, end = self.file, 0, _length(raw)
        if isinstance(raw, bytes):
            file = io.BytesIO(raw)
        else:
            start, end = raw
        self._spend(end - start)
        file.seek(start)
        for _ in range(3):  # magic number, protocol, about the system
            read(file, end)
        storage = read(file, end).root
        read(file, end)  # the keys
        (elements,) = struct.unpack("<q", file.read(8))
        if not isinstance(storage, Storage) or elements != storage.elements:
            raise BadInput("it holds a storage that is none")
        source: Raw | bytes = Raw(file.tell(), end)
        if isinstance(raw, bytes):
            source = file.read()
        self.file.seek(back)
        return storage._replace(source=source, key=f"bytes {back}")

    def _list(self, full: str, items: Any = (), *_: Any) -> Any:
        if not isinstance(items, list | tuple):
            return Foreign(full)
        if full != "collections.deque":
            return items
        self._spend(len(items))
        made = list(items)
        self.fillable.append((full, made))
        return made

    def _container(self, full: str, arguments: tuple[Any, ...]) -> Any:
        if full == "collections.defaultdict" and (not arguments or isinstance(arguments[0], Name | Foreign)):
            filled: dict[Any, Any] = {}
            self.fillable.append((full, filled))
            return filled
        if not arguments or arguments[0] is None:
            return {}
        given = arguments[0]
        if isinstance(given, list):  # pairs: how Python 2 wrote an OrderedDict
            self._spend(len(given))
            made: dict[Any, Any] = {}
            for key, value in given:
                _update(made, [key, value])
            return made
        if isinstance(given, dict):
            return given
        return Foreign(full)

    def _encoded(self, text: Any) -> bytes:
        self._spend(len(text))
        return str(text).encode("latin1")

    def _spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise BadInput("its pickle makes more than it holds")


def _length(source: Raw | bytes) -> int:
    if isinstance(source, Raw):
        return source.end - source.start
    return len(source)


def _extend(holder: Any, items: list[Any]) -> None:
    if not isinstance(holder, Foreign):
        list.extend(holder, items)


def _update(holder: Any, items: list[Any]) -> None:
    if isinstance(holder, Foreign):
        return
    if not isinstance(holder, dict) or len(items) % 2:
        raise EOFError
    for key, value in zip(items[::2], items[1::2], strict=True):
        holder[_key(key)] = value


def _key(key: Any) -> Any:
    """What can be the key of a dict: a tuple only of plain values, because deep ones take the stack of hash()."""
    if key is None or isinstance(key, str | int | float | Name):
        return key
    if isinstance(key, tuple) and all(isinstance(part, str | int | float) for part in key):
        return key
    if isinstance(key, list | dict):  # no pickle has one that was ever loaded
        raise EOFError
    if isinstance(key, Foreign):
        return Name(key.full)
    return Name(f"{type(key).__name__} {id(key):x}")
