"""Reads pickles without running them: a tree of tensors, containers and plain values. Pure, jobs thread.

A pickle is a program for a stack machine. This machine builds symbols: a name that the pickle asks for
(`torch._utils._rebuild_tensor_v2`, `posix.system`) stays a name, nothing is imported and nothing called. What calling
a name of others would have made is a `Foreign`; what tensors need is done here. Protocols 0 to 5, of Python 2 as well.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from devexplorer.core.base import BadInput
from devexplorer.core.files.entries import DIMENSIONS_LIMIT
from devexplorer.core.files.symbols import (
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

STEPS_LIMIT = 60_000_000
"""Opcodes of one pickle: a tensor of a state dict takes about 33."""
_CONTAINERS = {"collections.OrderedDict", "collections.Counter", "collections.defaultdict", "builtins.dict"}
_LISTS = {"builtins.list", "builtins.tuple", "builtins.set", "builtins.frozenset", "collections.deque"}
_PLAIN = {"builtins.complex", "builtins.bytearray", "torch.device", "torch.serialization._get_layout"}
_REBUILD = {f"torch._utils._rebuild_tensor{version}" for version in ("", "_v2", "_v3")}
_PARAMETER = {f"torch._utils._rebuild_parameter{state}" for state in ("", "_with_state")} | {
    "torch.nn.parameter.Parameter"
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
_LOADED_BY_TORCH = {"torch.Size", "torch.Tensor", "_codecs.encode", "collections.OrderedDict", "collections.Counter"}
_BYTES = "torch.storage._load_from_bytes"
_NUMPY = tuple(f"numpy.{core}." for core in ("core", "_core"))
_NUMBERS = set("?bBhHiIlLqQefdFD") | {f"{kind}{size}" for kind in "biufc" for size in (1, 2, 4, 8, 16)}
"""NumPy's names for what can be a tensor."""
_DTYPES = {"S": "Bytes", "U": "Str", "V": "Void", "O": "Object", "M": "DateTime64", "m": "TimeDelta64"}
"""Its other kinds -> the class of their dtype."""


_GET, _PUT, _WHOLE = rb"(?:h.|j.{4})", rb"r(.{4})", rb"(?:K.|M..|J.{4})"
_SIZES = rb"(" + _WHOLE + rb"\x85|" + _WHOLE * 2 + rb"\x86|" + _WHOLE * 3 + rb"\x87|\(" + _WHOLE + rb"{4,64}t)"
_TENSOR = re.compile(
    rb"\(\((" + _GET * 2 + rb")(?:X(.)\0\0\0(\d+)" + _PUT + rb"|(" + _GET + rb"))(" + _GET + _WHOLE + rb")t" + _PUT
    + rb"Q(" + _WHOLE + rb")" + (_SIZES + _PUT) * 2 + rb"\x89(" + _GET + rb")\)R" + _PUT + rb"t" + _PUT + rb"R" + _PUT,
    re.DOTALL,
)  # fmt: skip
"""The arguments of a tensor and its making, as torch.save writes them: 28 opcodes, which are read in one step."""
_MADE = (Name("torch._utils._rebuild_tensor_v2"), Name("collections.OrderedDict"))
_PLACES = {count: struct.Struct(f"<{count}I") for count in (6, 7)}


def read(data: bytes, start: int = 0, known: Mapping[Any, Any] | None = None) -> Tree:
    """The tree; raises any exception for a damaged pickle. `known`: what its persistent ids mean, where these are not
    descriptions of storages."""
    machine = _Machine(data, start, known)
    root = machine.run()
    names = tuple(machine.names)
    never = tuple({f"{full} with something in it": None for full, made in machine.fillable if made})
    beyond = tuple(filter(_beyond_torch, names))
    if machine.has_modules:
        never = ("whole model of the old format", *never)
    return Tree(root, names, beyond, never, machine.protocol, machine.storages, machine.at)


def _beyond_torch(full: str) -> bool:
    module, _, last = full.rpartition(".")
    known = full in _LOADED_BY_TORCH or full in _SPECIAL or full in _REBUILD or full in _PARAMETER
    known = known or full in ("builtins.set", "builtins.complex", "builtins.bytearray", _FROM_TYPE, _FROM_CPU)
    storage = module in ("torch", "torch.cuda", "torch.storage") and last in STORAGES
    dtype = module == "torch" and isinstance(vars(torch).get(last), (torch.dtype, torch.qscheme))
    return not (known or storage or full in _PLAIN or dtype)


class _Machine:
    """The stack machine of the pickle format, with symbols."""

    def __init__(self, data: bytes, start: int, known: Mapping[Any, Any] | None) -> None:
        self.data, self.at, self.known = data, start, known
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: list[Any] = []
        self.names: dict[str, None] = {}
        self.storages: dict[str, Storage] = {}
        self.fillable: list[tuple[str, dict[Any, Any] | list[Any]]] = []
        """Containers that `torch.load(weights_only=True)` makes where it is allowed to, and never fills."""
        self.has_modules = False
        """Whether it names classes of modules in the way of before torch 1.6."""
        self.alike: dict[tuple[bytes, bytes], Storage] = {}
        """Descriptions of storages that differ in their keys only."""
        self.protocol = 0
        self.left = 2 * len(data) + 1000
        """Of what may be copied: a pickle can refer to a large thing a million times."""

    def run(self) -> Any:
        """Every opcode up to STOP. The frequent ones are here, in local variables: a large file has 30 million."""
        data, size, at, stack, below, memo = self.data, len(self.data), self.at, self.stack, self.below, self.memo
        for _ in range(STEPS_LIMIT):
            code = data[at]
            at += 1
            if code == 0x71:  # BINPUT
                _put(memo, data[at], stack[-1])
                at += 1
            elif code == 0x72:  # LONG_BINPUT
                index = int.from_bytes(data[at : at + 4], "little")
                memo.append(stack[-1]) if index == len(memo) else _put(memo, index, stack[-1])
                at += 4
            elif code == 0x68:  # BINGET
                stack.append(memo[data[at]])
                at += 1
            elif code == 0x28:  # MARK
                if data[at] == 0x28 and stack and (end := self._tensor(stack, at - 1)):
                    at = end
                    continue
                below.append(stack)
                stack = []
            elif code == 0x58:  # BINUNICODE
                end = at + 4 + int.from_bytes(data[at : at + 4], "little")
                if end > size:
                    raise EOFError
                stack.append(data[at + 4 : end].decode("utf-8", "surrogatepass"))
                at = end
            elif code == 0x4B:  # BININT1
                stack.append(data[at])
                at += 1
            elif code == 0x74:  # TUPLE
                items = tuple(stack)
                stack = below.pop()
                stack.append(items)
            elif code == 0x85:  # TUPLE1
                stack[-1] = (stack[-1],)
            elif code == 0x86:  # TUPLE2
                stack[-2:] = [(stack[-2], stack[-1])]
            elif code == 0x29:  # EMPTY_TUPLE
                stack.append(())
            elif code == 0x52:  # REDUCE
                arguments = stack.pop()
                stack[-1] = self._made(stack[-1], arguments)
            elif code == 0x51:  # BINPERSID
                stack[-1] = self._persistent(stack[-1])
            elif code == 0x89:  # NEWFALSE
                stack.append(False)
            elif code == 0x4A:  # BININT
                stack.append(int.from_bytes(data[at : at + 4], "little", signed=True))
                at += 4
            elif code == 0x4D:  # BININT2
                stack.append(int.from_bytes(data[at : at + 2], "little"))
                at += 2
            elif code == 0x2E:  # STOP
                self.at = at
                return stack.pop()
            else:
                self.at, self.stack = at, stack
                self._rare(chr(code))
                at, stack = self.at, self.stack
        raise BadInput(f"its pickle has more than {STEPS_LIMIT:,} steps")

    def _tensor(self, stack: list[Any], start: int) -> int:
        """Put the tensor whose arguments begin there on the stack: where it ends; 0: it has to be read step by step.
        What no file refers to again (tuples of arguments, hooks) is not remembered: a third of the memory."""
        found = _TENSOR.match(self.data, start)
        if found is None or self.known is not None:
            return 0
        head, length, new, first, old, tail, second, offset, shape, third, stride, fourth, hooks, *last = found.groups()
        memo = self.memo
        place = len(memo)
        if new is None:
            key, puts, count = memo[_whole(old)], (second, third, fourth, *last), 6
        else:
            key, puts, count = new.decode(), (first, second, third, fourth, *last), 7
        expected = _PLACES[count].pack(*range(place, place + count))
        if b"".join(puts) != expected or (new and len(new) != length[0]) or (stack[-1], memo[_whole(hooks)]) != _MADE:
            return 0
        alike = self.alike.get((head, tail))
        if alike is None:
            tag, kind, device, elements = re.findall(_GET + rb"|" + _WHOLE, head + tail, re.DOTALL)
            reference = (memo[_whole(tag)], memo[_whole(kind)], key, memo[_whole(device)], _whole(elements))
            alike = self.alike[head, tail] = self._persistent(reference)
        storage = self._kept(Storage(str(key), *alike[1:]))
        sizes, steps = _sizes(shape), _sizes(stride)
        stack[-1] = Stored(storage, storage.dtype or torch.uint8, _whole(offset), sizes, steps)
        if new:
            memo.append(key)
        memo += (None, sizes, steps, None, None, stack[-1])
        return found.end()

    def _rare(self, code: str) -> None:  # one case an opcode: a table of methods would be no shorter
        stack = self.stack
        match code:
            case "\x80":
                self.protocol = self._number(1)
            case "\x95":  # FRAME
                self._number(8)
            case "j":
                stack.append(self.memo[self._number(4)])
            case "\x94":
                self.memo.append(stack[-1])
            case "p" | "g":
                index = int(self._line())
                if code == "p":
                    _put(self.memo, index, stack[-1])
                else:
                    stack.append(self.memo[index])
            case "N" | "\x88":
                stack.append(None if code == "N" else True)
            case "}" | "]" | "\x8f":
                stack.append({} if code == "}" else [])
            case "\x8c" | "\x8d":
                stack.append(self._bytes(1 if code == "\x8c" else 8).decode("utf-8", "surrogatepass"))
            case "V":
                stack.append(self._line().decode("raw-unicode-escape", "surrogatepass"))
            case "U" | "T" | "S":
                if code == "S":
                    raw = self._line()[1:-1]
                elif code == "U":
                    raw = self._bytes(1)
                else:
                    raw = self._bytes(4)
                stack.append(raw.decode() if raw.isascii() else Raw(self.at - len(raw), self.at))
            case "B" | "C" | "\x8e" | "\x96":
                length = len(self._bytes({"B": 4, "C": 1}.get(code, 8)))
                stack.append(Raw(self.at - length, self.at))
            case "\x8a" | "\x8b":
                stack.append(int.from_bytes(self._bytes(1 if code == "\x8a" else 4), "little", signed=True))
            case "G":
                stack.append(struct.unpack(">d", self._take(8))[0])
            case "I" | "L" | "F":
                stack.append(_number(self._line(), code))
            case "\x87":
                stack[-3:] = [tuple(stack[-3:])]
            case "a":
                _extend(stack, [stack.pop()])
            case "e" | "\x90":
                items = self._since_mark()
                _extend(self.stack, items)
            case "s":
                _update(stack, [stack.pop(-2), stack.pop()])
            case "u":
                items = self._since_mark()
                _update(self.stack, items)
            case "d" | "l" | "\x91":
                items = self._since_mark()
                self.stack.append({} if code == "d" else items)
                if code == "d":
                    _update(self.stack, items)
            case "0" | "1" | "2":
                if code == "1":
                    self._since_mark()
                else:
                    stack.append(stack[-1]) if code == "2" else stack.pop()
            case "c" | "i" | "\x93":
                name = self._name(code)
                if code == "i":
                    self.stack.append(self._made(name, tuple(self._since_mark())))
                else:
                    self.stack.append(name)
            case "o":
                what, *rest = self._since_mark()
                self.stack.append(self._made(what, tuple(rest)))
            case "\x81" | "\x92":
                if code == "\x92":
                    stack.pop()
                arguments = stack.pop()
                stack[-1] = self._made(stack[-1], arguments)
            case "b":
                state = stack.pop()
                self._built(stack[-1], state)
            case "P":
                stack.append(self._persistent(self._line().decode()))
            case "\x82" | "\x83" | "\x84":
                raise BadInput("its pickle asks for an extension, which no file of tensors does")
            case _:
                raise BadInput(f"its pickle has the opcode {code!r}, which torch.save does not write")

    # --- pieces of the bytes

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise EOFError
        piece, self.at = self.data[self.at : end], end
        return piece

    def _number(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _bytes(self, count: int) -> bytes:
        return self._take(self._number(count))

    def _line(self) -> bytes:
        end = self.data.index(b"\n", self.at)
        piece, self.at = self.data[self.at : end], end + 1
        return piece

    def _since_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.below.pop()
        return items

    # --- what stands for what

    def _name(self, code: str) -> Name:
        if code == "\x93":
            last, module = self.stack.pop(), self.stack.pop()
        else:
            module, last = self._line().decode(), self._line().decode()
        if not isinstance(module, str) or not isinstance(last, str):
            raise BadInput("its pickle asks for a name that is no text")
        module = "builtins" if module == "__builtin__" else module
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
        if full in _LISTS or full == "torch.Size":
            items = arguments[0] if arguments else ()
            if not isinstance(items, (list, tuple)):
                return Foreign(full)
            if full != "collections.deque":
                return items
            self._spend(len(items))
            self.fillable.append((full, [*items]))
            return self.fillable[-1][1]
        if full in _PARAMETER:
            tensor = arguments[0]
            return tensor._replace(requires_grad=bool(arguments[1])) if isinstance(tensor, Stored) else tensor
        if full == _FROM_TYPE:
            return self._made(arguments[0], arguments[2])
        if full == _FROM_CPU:
            return arguments[0]
        if full in _SPECIAL:
            return special(_SPECIAL[full], arguments)
        if full == "_codecs.encode" and arguments[1:] == ("latin1",):  # how protocol 2 writes bytes
            self._spend(len(arguments[0]))
            return str(arguments[0]).encode("latin1")
        if full == _BYTES:
            return self._storage_in_bytes(arguments[0])
        if full == "numpy.dtype":
            code = str(arguments[0])
            if code in _NUMBERS:  # torch.load wants the class of a dtype allowed, too
                self.names[f"numpy.dtypes.{type(_empty(code).dtype).__name__}"] = None
            elif code[:1] in _DTYPES:
                self.names[f"numpy.dtypes.{_DTYPES[code[:1]]}DType"] = None
            return Array(code)
        if full.startswith(_NUMPY) and full.endswith("._reconstruct"):
            return Array()
        if full.startswith(_NUMPY) and full.endswith("._frombuffer"):
            data, dtype, shape, order = arguments
            return self._array(Array(), (1, shape, dtype, order == "F", data))
        return full if full in _PLAIN else Foreign(full)

    def _built(self, what: Any, state: Any) -> None:
        if isinstance(what, Foreign):
            what.is_module = isinstance(state, dict) and "_parameters" in state
        elif isinstance(what, Array) and what.code:
            what.swapped = isinstance(state, tuple) and state[1:2] == (">",)
        elif isinstance(what, Array):
            self._array(what, state)

    def _array(self, array: Array, state: tuple[Any, ...]) -> Array:
        _, shape, dtype, fortran, source = state
        numbers = isinstance(dtype, Array) and dtype.code in _NUMBERS and not dtype.swapped
        if len(shape) > DIMENSIONS_LIMIT or any(type(length) is not int for length in shape):
            raise BadInput("the shape of an array in it is not a shape")
        if isinstance(source, str):
            self._spend(len(source))
            source = source.encode("latin1")
        if numbers and isinstance(source, (Raw, bytes)):
            kind = torch.from_numpy(_empty(dtype.code)).dtype
            strides, step = [], 1
            for length in shape if fortran else reversed(shape):
                strides.append(step)
                step *= length
            size = source.end - source.start if isinstance(source, Raw) else len(source)
            storage = Storage(f"array {id(array)}", kind, "cpu", size // kind.itemsize, source)
            array.stored = checked(storage, kind, 0, shape, tuple(strides if fortran else reversed(strides)))
        return array

    def _persistent(self, reference: Any) -> Any:
        if self.known is not None:  # a number, or the class of a module and its source
            return reference[0] if isinstance(reference, tuple) else self.known[int(reference)]
        if reference[0] == "module":  # of old: the class of a module, and its source
            self.has_modules = True
            return reference[1]
        kind, what, key, location, elements = reference[:5]
        dtype = storage_dtype(what)
        if kind != "storage" or type(elements) is not int or elements < 0:
            raise BadInput("it refers to something outside that is no storage")
        view = reference[5][1] if len(reference) > 5 and reference[5] else 0
        if type(view) is not int or view < 0:
            raise BadInput("it refers to a part of a storage that is none")
        return self._kept(Storage(str(key), dtype, str(location), elements, None, view))

    def _kept(self, storage: Storage) -> Storage:
        first = self.storages.setdefault(storage.key, storage)
        return first if first == storage else storage

    def _storage_in_bytes(self, raw: Any) -> Storage:
        """How `pickle.dump` writes a storage: a file of torch.save, of the old format, in bytes."""
        data, at, end = (raw, 0, len(raw)) if isinstance(raw, bytes) else (self.data, raw.start, raw.end)
        self._spend(end - at)
        for _ in range(3):  # magic number, protocol, about the system
            at = read(data, at).end
        tree = read(data, at)
        storage, at = tree.root, read(data, tree.end).end
        (elements,) = struct.unpack("<q", data[at : at + 8])
        if not isinstance(storage, Storage) or elements != storage.elements:
            raise BadInput("it holds a storage that is none")
        source = data[at + 8 :] if isinstance(raw, bytes) else Raw(at + 8, end)
        return storage._replace(source=source, key=f"bytes {self.at}")

    def _container(self, full: str, arguments: tuple[Any, ...]) -> Any:
        if full == "collections.defaultdict" and (not arguments or isinstance(arguments[0], (Name, Foreign))):
            self.fillable.append((full, {}))
            return self.fillable[-1][1]
        given = arguments[0] if arguments and arguments[0] is not None else {}
        if isinstance(given, list):  # pairs: how Python 2 wrote an OrderedDict
            self._spend(len(given))
            holder: list[Any] = [{}]
            for key, value in given:
                _update(holder, [key, value])
            return holder[0]
        return given if isinstance(given, dict) else Foreign(full)

    def _spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise BadInput("its pickle makes more than it holds")


def _put(memo: list[Any], index: int, thing: Any) -> None:
    """Remember; numbers follow each other, so that one that does not cannot ask for memory, and each stands for one
    thing."""
    if index == len(memo):
        memo.append(thing)
        return
    if index > len(memo) + 1000 or (index < len(memo) and memo[index] is not None):
        raise EOFError
    while index >= len(memo):
        memo.append(None)
    memo[index] = thing


def _whole(raw: bytes) -> int:
    """The number behind an opcode."""
    return int.from_bytes(raw[1:], "little", signed=raw[0] == 0x4A)


@lru_cache(maxsize=1024)  # most tensors of a large file are alike
def _sizes(raw: bytes) -> tuple[int, ...]:
    return tuple(map(_whole, re.findall(_WHOLE, raw, re.DOTALL)))


def _number(line: bytes, code: str) -> Any:
    if code == "I" and line in (b"00", b"01"):
        return line == b"01"
    return float(line) if code == "F" else int(line.rstrip(b"L"))


def _extend(stack: list[Any], items: list[Any]) -> None:
    if not isinstance(stack[-1], Foreign):
        list.extend(stack[-1], items)


def _update(stack: list[Any], items: list[Any]) -> None:
    if isinstance(stack[-1], Foreign):
        return
    if not isinstance(stack[-1], dict) or len(items) % 2:
        raise EOFError
    for key, value in zip(items[::2], items[1::2], strict=True):
        stack[-1][key if type(key) is str else _key(key)] = value


def _key(key: Any) -> Any:
    """What can be the key of a dict: a tuple only of plain values, because deep ones take the stack of hash()."""
    if key is None or isinstance(key, (str, int, float, Name)):
        return key
    if isinstance(key, tuple) and all(isinstance(part, (str, int, float)) for part in key):
        return key
    if isinstance(key, (list, dict)):  # no pickle has one that was ever loaded
        raise EOFError
    return Name(key.full if isinstance(key, Foreign) else f"{type(key).__name__} {id(key):x}")


def _empty(code: str) -> Any:
    import numpy as np

    return np.empty(0, code)
