"""Reads the pickle of an allocator snapshot piece by piece: no name in it is looked up, nothing in it is called, and
only what is shown is held. Jobs thread of the engine.

A pickle can name any function and have it called. `PlainUnpickler` knows no name at all, so that what it reads is
numbers, texts, tuples, lists and dicts, or nothing. It is Python's own unpickler, not the one in C: that one believes
the memo indices in a file and reserves 16 bytes for each below the largest (measured: one opcode, 128 MiB; it can ask
for 64 GiB), and holds every value until the end.

In a file of torch the segments come first, then what was recorded, which is nearly all of a large file and of which
only the number of entries is shown. So a segment is handed over as soon as it is complete and is then forgotten, and of
the lists beside the segments the items are passed over (`passed_over`), not built. A pickle refers to earlier values by
their number; where a segment refers to one that was passed over, the file is read again with everything held.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any, BinaryIO, ClassVar, NoReturn

from devexplorer.core.base import BadInput, bytes_text

Progress = Callable[[float], None]
"""Gets the share of the file that is read; may raise `Cancelled`."""
Take = Callable[[Any], tuple[set[int], dict[int, Any]]]
"""Gets a segment; returns the ids of what is in it and need not be held, and by id what is to be held instead."""
MOST_HELD = 400 << 20
"""Estimated bytes of values that are held at once."""
MOST_MEMO = 500_000
"""Values beyond which the stacks of a segment are forgotten with it: torch never refers to them from another one."""
DEEPEST = 100
"""Values within values; a snapshot has eight levels."""
LONGEST_VALUE = 1 << 20
CHUNK = 1 << 18
AHEAD = 1 << 16
"""At least so much of the file lies in the buffer while entries are passed over, so that an entry is seen whole."""


class PickledFile:
    """A file that is read in chunks and reports how far it is read. It believes no length that a pickle claims."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress) -> None:
        self._file, self._size, self._progress = file, max(size, 1), progress
        self._read = 0
        self.buffer = b""
        self.position = 0
        """Of the next byte, in the buffer."""

    def fill(self, count: int) -> None:
        """Have at least `count` bytes ahead in the buffer, or all that there are."""
        if count > LONGEST_VALUE:
            raise BadInput(f"it is damaged, or no allocator snapshot: it claims a value of {bytes_text(count)}")
        while len(self.buffer) - self.position < count:
            more = self._file.read(CHUNK)
            if not more:
                return
            self.buffer = self.buffer[self.position :] + more
            self.position = 0
            self._read += len(more)
            self._progress(min(self._read / self._size, 1.0))

    def read(self, count: int) -> bytes:
        """The next `count` bytes, or as many as there are."""
        end = self.position + count
        if end > len(self.buffer):
            self.fill(count)
            end = self.position + count
        data = self.buffer[self.position : end]
        self.position += len(data)
        return data

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes; `EOFError` when there are fewer."""
        data = self.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def readline(self) -> bytes:
        """To the end of the line."""
        end = self.buffer.find(b"\n", self.position)
        if end < 0:
            self.fill(LONGEST_VALUE)
            end = self.buffer.find(b"\n", self.position)
            if end < 0:
                raise EOFError
        return self.read(end + 1 - self.position)

    def skip(self, count: int) -> None:
        """Pass over `count` bytes, however many."""
        while count:
            step = min(count, CHUNK)
            self.exactly(step)
            count -= step


class Counted:
    """A list of which only the number of items is kept, and of those that are such lists themselves, these."""

    __slots__ = ("count", "lists")

    def __init__(self) -> None:
        self.count = 0
        self.lists: list[Counted] = []

    def append(self, item: object) -> None:
        """As of a list."""
        self.count += 1
        if isinstance(item, Counted):
            self.lists.append(item)

    def extend(self, items: list[object]) -> None:
        """As of a list."""
        for item in items:
            self.append(item)


class Segments:
    """The list of segments: each is handed over when it is complete."""

    __slots__ = ("append",)

    def __init__(self, take: Callable[[object], None]) -> None:
        self.append = take

    def extend(self, items: list[object]) -> None:
        """As of a list."""
        for item in items:
            self.append(item)


class PassedOver(Exception):
    """A segment refers to a value that is no longer held."""


class _Memo(dict[int, Any]):
    """Values by number. One that was passed over is `LOST`: outside of the segments nobody asks what it was."""

    def __init__(self, unpickler: PlainUnpickler) -> None:
        super().__init__()
        self._unpickler = unpickler

    def __missing__(self, index: int) -> object:
        if not 0 <= index < self._unpickler.numbered or self._unpickler.whole:
            raise KeyError(index)
        if self._unpickler.is_in_segments():
            raise PassedOver
        return LOST


LOST = object()
_CLOSED = (
    pickle.BYTEARRAY8,  # reserves as many bytes as the file claims
    pickle.BUILD,  # sets attributes
    pickle.EMPTY_SET,
    pickle.FROZENSET,
    pickle.ADDITEMS,
    pickle.NEXT_BUFFER,
    pickle.READONLY_BUFFER,
)
_LONG = (
    pickle.BINUNICODE, pickle.BINUNICODE8, pickle.BINSTRING, pickle.BINBYTES, pickle.BINBYTES8, pickle.UNICODE,
    pickle.STRING, pickle.LONG, pickle.LONG4, pickle.INT,
)  # fmt: skip
_SMALL = (
    pickle.BINGET, pickle.LONG_BINGET, pickle.GET, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT1,
    pickle.EMPTY_TUPLE, pickle.DUP,
)  # fmt: skip
_NOTHING = (
    pickle.PROTO, pickle.FRAME, pickle.APPEND, pickle.APPENDS, pickle.POP, pickle.POP_MARK, pickle.STOP,
)  # fmt: skip
BYTES_OF = [180] * 256
"""What an opcode adds to the values held, at most: an empty dict, a number in the memo, a short text."""
for _opcode in _SMALL:
    BYTES_OF[_opcode[0]] = 9
for _opcode in _NOTHING:
    BYTES_OF[_opcode[0]] = 0
for _opcode in (pickle.BININT, pickle.BININT2, pickle.BINFLOAT, pickle.LONG1):
    BYTES_OF[_opcode[0]] = 45
BYTES_OF_MEMO = 300
"""Of a value that stays, with its number."""


class PlainUnpickler(pickle._Unpickler):
    """Refuses whatever is not a plain value."""

    dispatch: ClassVar[dict[int, Any]] = {
        opcode: do for opcode, do in pickle._Unpickler.dispatch.items() if bytes([opcode]) not in _CLOSED
    }

    def __init__(self, source: PickledFile, take: Take, *, whole: bool) -> None:
        """`take` gets each segment. `whole`: hand over nothing, hold everything."""
        super().__init__(source)
        self.whole = whole
        self.numbered = 0
        """Values that have a number, those passed over too."""
        self.memo: dict[int, Any] = _Memo(self)
        self._source, self._take = source, take
        self._segments = Segments(self._hand_over)
        self._fresh: list[int] = []
        """Numbers given since the last segment."""
        self._held = 0
        self.stack: list[Any] = []
        self.metastack: list[list[Any]] = []

    def load(self) -> Any:
        """The value in the file; `Segments` and `Counted` where its lists are not held."""
        self.read, self.readline = self._source.read, self._source.readline
        self.append = self.stack.append
        read, dispatch = self.read, self.dispatch
        try:
            while True:
                opcode = read(1)
                if not opcode:
                    raise EOFError
                self._held += BYTES_OF[opcode[0]]
                if self._held > MOST_HELD:
                    raise self._too_much()
                dispatch[opcode[0]](self)
        except pickle._Stop as stop:  # type: ignore[attr-defined]
            return stop.value

    def _too_much(self) -> BadInput:
        most = bytes_text(MOST_HELD, 0)
        if self.whole:
            return BadInput(
                f"its segments refer to what was recorded before them, and to hold all of that takes more than {most}; "
                "torch writes the segments first"
            )
        return BadInput(f"one of its segments, or something that is none, takes more than {most} of memory")

    def is_in_segments(self) -> bool:
        """Whether what is read now is part of a segment."""
        for level in (*self.metastack, self.stack):
            if level and level[-1] is self._segments:
                return True
            if len(level) > 1 and level[-2] is self._segments and type(level[-1]) is dict:
                return True
        return False

    def _hand_over(self, segment: object) -> None:
        gone, instead = self._take(segment)
        for index in self._fresh:
            value = self.memo.get(index)
            if id(value) in gone or (id(value) in instead and len(self.memo) > MOST_MEMO):
                self.memo.pop(index, None)
            elif id(value) in instead:
                self.memo[index] = instead[id(value)]
        self._fresh.clear()
        self._held = BYTES_OF_MEMO * len(self.memo)

    # --- what differs from Python's

    def load_frame(self) -> None:
        """Frames are for readers that want few calls."""
        self._source.exactly(8)

    def load_mark(self) -> None:
        """Items of a list that is only counted are passed over, from here to the end of the batch."""
        if self.stack and type(self.stack[-1]) is Counted and self._next() == pickle.EMPTY_DICT:
            items, numbered = passed_over(self._source)
            self.stack[-1].count += items
            self.numbered += numbered
            return
        if len(self.metastack) > DEEPEST:
            raise _too_deep()
        super().load_mark()  # type: ignore[misc]

    def _next(self) -> bytes:
        self._source.fill(1)
        return self._source.buffer[self._source.position : self._source.position + 1]

    def load_empty_list(self) -> None:
        """The segments, a list beside them, or any other list."""
        self.append([] if self.whole else self._new_list())

    def _new_list(self) -> Any:
        if not self.stack and not self.metastack:
            return self._segments  # old snapshots are the list of segments alone
        if self._is_value_of_root():
            return self._segments if self.stack[-1] == "segments" else Counted()
        around = self.stack or self.metastack[-1]
        if around and type(around[-1]) is Counted:
            return Counted()
        return []

    def _is_value_of_root(self) -> bool:
        if len(self.metastack) > 1 or not self.stack or type(self.stack[-1]) is not str:
            return False
        below = self.metastack[0] if self.metastack else self.stack[:-1]
        return len(below) == 1 and type(below[0]) is dict

    def load_empty_dictionary(self) -> None:
        """Where a segment begins, the one before is complete."""
        if self.stack and self.metastack and self.metastack[-1] and self.metastack[-1][-1] is self._segments:
            self._hand_over(self.stack.pop())
        self.append({})

    def _put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]
        self.numbered += 1
        self._fresh.append(index)

    def load_memoize(self) -> None:
        """Number the value."""
        self._put(self.numbered)

    def load_binput(self) -> None:
        """As `load_memoize`, in older protocols."""
        self._put(self._source.exactly(1)[0])

    def load_long_binput(self) -> None:
        """As `load_memoize`, in older protocols."""
        self._put(int.from_bytes(self._source.exactly(4), "little"))

    def load_put(self) -> None:
        """As `load_memoize`, in protocol 0."""
        self._put(int(self.readline()[:-1]))

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Called for every global in the file, by name or by number of an extension."""
        raise _not_plain(f"asks for {module[:80]}.{name[:80]}")

    def get_extension(self, code: int) -> NoReturn:
        """A global by its number in copyreg's registry, which may be in its cache."""
        raise _not_plain(f"asks for the extension {code}")

    def persistent_load(self, pid: Any) -> NoReturn:
        """A value that lives outside the file."""
        raise _not_plain("refers to values outside the file")


for _name, _opcode in (
    ("load_frame", pickle.FRAME),
    ("load_mark", pickle.MARK),
    ("load_empty_list", pickle.EMPTY_LIST),
    ("load_empty_dictionary", pickle.EMPTY_DICT),
    ("load_memoize", pickle.MEMOIZE),
    ("load_binput", pickle.BINPUT),
    ("load_long_binput", pickle.LONG_BINPUT),
    ("load_put", pickle.PUT),
):
    PlainUnpickler.dispatch[_opcode[0]] = getattr(PlainUnpickler, _name)


def _counting_bytes(load: Callable[[PlainUnpickler], None]) -> Callable[[PlainUnpickler], None]:
    """A long value counts with its length."""

    def counted(self: PlainUnpickler) -> None:
        load(self)
        value = self.stack[-1]
        self._held += value.bit_length() // 8 if isinstance(value, int) else 4 * len(value)

    return counted


for _opcode in _LONG:
    PlainUnpickler.dispatch[_opcode[0]] = _counting_bytes(PlainUnpickler.dispatch[_opcode[0]])


def _not_plain(what: str) -> BadInput:
    return BadInput(f"it {what}; a snapshot of PyTorch has plain values only, so this is none")


def _too_deep() -> BadInput:
    return BadInput(f"it has values more than {DEEPEST} levels deep; no allocator snapshot has")


# --- passing over: opcodes as they follow each other, without the values

_GET = rb"(?:h.|j.{4})"
_PLAIN = rb"(?:h.|j.{4}|K.|M.{2}|J.{4}|G.{8}|N|\x88|\x89|" + b"|".join(
    b"\\x8a\\x%02x.{%d}" % (length, length) for length in range(10)
)  # fmt: skip
_PLAIN += rb")"
_SHORT_TEXT = rb"\x8c(?:" + b"|".join(b"\\x%02x.{%d}" % (length, length) for length in range(48)) + rb")"
_FRAMES = rb"\]\x94(?:\(" + _GET + rb"++e|" + _GET + rb"a)?"
_NUMBERED = rb"(?:(" + _FRAMES + rb"|" + _SHORT_TEXT + rb"\x94|\x86\x94)" + _PLAIN + rb"*+)?"
ENTRY = re.compile(rb"\}\x94\(" + _PLAIN + rb"*+" + _NUMBERED * 5 + rb"u", re.DOTALL)
"""One entry as torch writes it, whose stack has only frames that were met before: a dict with at most five values that
get a number (a list of frames, short texts, the pool) among others that get none. Possessive, so that what is none is
seen in one go."""

_SKIPPED = {  # opcode -> bytes of its argument, for those that push one value
    b"N": 0, b"\x88": 0, b"\x89": 0, b"]": 0, b"}": 0, b")": 0, b"2": 0,
    b"K": 1, b"M": 2, b"J": 4, b"G": 8, b"h": 1, b"j": 4,
}  # fmt: skip
_SIZED = {b"\x8c": 1, b"U": 1, b"C": 1, b"\x8a": 1, b"X": 4, b"T": 4, b"B": 4, b"\x8b": 4, b"\x8d": 8, b"\x8e": 8}
"""Opcode -> bytes of the length of its argument."""
_PUTS = {b"\x94": 0, b"q": 1, b"r": 4}
_POPS = {b"a": 1, b"s": 2, b"0": 1, b"\x85": 0, b"\x86": 1, b"\x87": 2}
"""Opcode -> by how many values the stack gets shorter."""
_LINES = (b"I", b"L", b"F", b"S", b"V", b"g")


def passed_over(source: PickledFile) -> tuple[int, int]:
    """Read from behind a MARK to the APPENDS that belongs to it, and hold nothing. The number of values appended, and
    of those that got a number in the memo."""
    marks = [0]
    size = 0
    """Values on the stack above the first mark."""
    numbered = 0
    last = before = b""
    """The two texts that were read last: a global by name takes its name from them."""
    match = ENTRY.match
    while True:
        if len(source.buffer) - source.position < AHEAD:
            source.fill(AHEAD)
        found = match(source.buffer, source.position)
        if found is not None:
            source.position = found.end()
            size += 1
            numbered += 6 - found.groups().count(None)
            continue
        opcode = source.exactly(1)
        if opcode in _SKIPPED:
            source.exactly(_SKIPPED[opcode])
            size += 1
        elif opcode in _PUTS:
            source.exactly(_PUTS[opcode])
            numbered += 1
        elif opcode in _SIZED:
            length = int.from_bytes(source.exactly(_SIZED[opcode]), "little")
            before, last = last, source.exactly(min(length, 80))
            source.skip(length - len(last))
            size += 1
        elif opcode == b"(":
            if len(marks) > DEEPEST:
                raise _too_deep()
            marks.append(size)
        elif opcode in (b"e", b"u"):
            mark = marks.pop()
            if not marks:
                if opcode != b"e":
                    raise ValueError("a list that is closed as a dict")
                return size, numbered
            size = mark
        elif opcode in (b"t", b"l", b"d"):
            size = marks.pop() + 1
        elif opcode in _POPS:
            size -= _POPS[opcode]
        elif opcode == b"\x95":
            source.exactly(8)
        elif opcode in _LINES:
            source.readline()
            size += 1
        elif opcode in (b"c", b"i"):
            raise _asks_for(source.readline()[:-1], source.readline()[:-1])
        elif opcode == b"\x93":
            raise _asks_for(before, last)
        elif opcode in (b"\x82", b"\x83", b"\x84"):
            raise _not_plain("asks for an extension")
        elif opcode in (b"P", b"Q"):
            raise _not_plain("refers to values outside the file")
        else:
            raise ValueError(f"opcode {opcode!r}")
        if not marks or size < marks[-1]:
            raise ValueError("a value that is not there")


def _asks_for(module: bytes, name: bytes) -> BadInput:
    return _not_plain(f"asks for {module.decode('utf-8', 'replace')[:80]}.{name.decode('utf-8', 'replace')[:80]}")


def read_plain(file: BinaryIO, size: int, take: Take, progress: Progress, *, whole: bool = False) -> Any:
    """What `PlainUnpickler` reads of a file; raises `BadInput`, `PassedOver`, and whatever a damaged one leads to."""
    unpickler = PlainUnpickler(PickledFile(file, size, progress), take, whole=whole)
    try:
        return unpickler.load()
    finally:
        unpickler.memo.clear()  # the unpickler is part of a circle, which may stay for a while
        unpickler.stack.clear()
        unpickler.metastack.clear()
