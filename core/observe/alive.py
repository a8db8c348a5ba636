"""What keeps a tensor, or any other object, alive: the chain of references that leads to it, in words. Any thread,
but for graphs and gradients (`search`); the time and the number of objects that it looks at are limited.

Python's garbage collector knows which object refers to which, but neither the variables of functions that run, nor what
autograd holds. So the variables of every frame are looked up beside it, and so are gradients and what the graphs of
live tensors have saved for backward. What is ours (our frames and containers) is left out.
"""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import operator
import os
import re
import sys
import time
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
import torch

from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.observe.graph import grad_fn, gradient, saved_in

_OURS = str(Path(__file__).parents[1]) + os.sep
_PACKAGE = __name__.removesuffix(".observe.alive")
_TORCH = str(Path(torch.__file__).parent) + os.sep
LONGEST_CHAIN = 24
"""References from the object to what is named in the code."""
MOST_OBJECTS = 2_000
"""Objects of one step outwards that are followed."""
MOST_SECONDS = 2.0
MOST_HOLDERS = 8
MOST_ROOTS = 8
"""Tensors whose graphs hold one, that are followed."""
FEW = 300
"""Up to so many, the collector's own search is quicker than one in Python."""
LONGEST_KEY = 40
_AS_KEY = " (as a key)"

Kind = Literal["name", "variable", "global", "closure", "class", "object", "nothing"]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """One chain of references to an object. `print(holder)` says it in words."""

    kind: Kind
    """Where the chain begins: a name in the workspace; a variable of a function that runs, a global, a variable of an
    enclosing function, an attribute of a class; an object of which nothing else is known; nothing that Python can
    see."""
    path: str = ""
    """As Python would write it: `self.cache['a'][3]`."""
    function: str = ""
    file: str = ""
    line: int = 0
    through: str = ""
    """The last step, where it is none of Python's: a graph that has saved it, a view of the same memory."""
    stopped: bool = False
    """The search ended at its limit; there can be others."""

    def __str__(self) -> str:
        place = ""
        if self.file:
            place = os.path.basename(self.file) + (f", line {self.line}" if self.line else "")
        words = {
            "name": f"{self.path}, in the workspace",
            "variable": f"{self.path} in {self.function or 'the script'} ({place})",
            "global": f"{self.path}, a global of {place or self.function}",
            "closure": f"{self.path}, from the closure of {self.function} ({place})",
            "class": f"{self.path}, an attribute of a class",
            "object": f"{self.path}, which no variable leads to",
            "nothing": "nothing that Python can see: autograd or another library holds it in C++",
        }[self.kind]
        if self.kind == "nothing" and self.stopped:
            words = "not found within the time limit"
        return f"{self.through} {words}" if self.through else words


def held_by(tensor: Any) -> tuple[Holder, ...]:
    """What keeps a tensor (or another object) alive, the most telling first; never empty.

    >>> for holder in devexplorer.held_by(losses[0]): print(holder)
    losses[0], a global of train.py
    """
    return search([tensor])[id(tensor)]


class _Start(NamedTuple):
    """Where a chain begins."""

    kind: Kind
    name: str
    function: str
    file: str
    line: int
    rank: int
    """Lower ones are told first."""


def frames_outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame and those that called it, without ours."""
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def is_ours(file: str) -> bool:
    """Whether it is a file of DevExplorer's (sample models count as the user's)."""
    return file.startswith(_OURS) and not file.startswith(f"{_OURS}models{os.sep}samples")


def _is_our_object(thing: Any) -> bool:
    """Whether it is of a class of ours, but for tensors of virtual GPUs and sample models."""
    module = type(thing).__module__
    ours = module.startswith(f"{_PACKAGE}.") and not module.startswith(f"{_PACKAGE}.models.samples")
    return ours and not _is(thing, torch.Tensor)


def variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a frame, as a dict of our own. Up to Python 3.12 a function's frame keeps the one that it is
    asked for, and with it what the function deletes later; so that one is emptied."""
    found = frame.f_locals
    copy = dict(found)
    if type(found) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        found.clear()
    return copy


def namespaces(frames: Iterable[FrameType] = ()) -> set[int]:
    """Ids of the dicts in which modules keep their globals."""
    found = {id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)}
    return found | {id(frame.f_globals) for frame in frames}


def search(
    wanted: Sequence[Any],
    frames: Iterable[FrameType] = (),
    own: Iterable[int] = (),
    *,
    seconds: float = MOST_SECONDS,
    most: int = MOST_HOLDERS,
    nearest: bool = False,
    tensors: list[torch.Tensor] | None = None,
    names: Mapping[str, Any] = MappingProxyType({}),
    autograd: bool = True,
) -> dict[int, tuple[Holder, ...]]:
    """The holders of several objects at once, by `id`. `frames`: others than those that run, of a traceback; `own`: ids
    of what the caller has that refers to them; `nearest`: what is behind the first name of the script's is not looked
    for; `tensors`: all that there are, where they are known; `names`: those of a workspace, with their objects. Without
    `autograd` neither gradients nor graphs are read: a backward on another thread frees them without the GIL."""
    with torch._C.DisableTorchFunction():  # modes that are on would see each attribute that is read
        looking = _HolderSearch(frames, {*own, id(wanted)}, seconds, nearest, tensors)
        looking.autograd = autograd
        try:
            looking.name(names)
            return looking.run(wanted, most)
        finally:
            vars(looking).clear()  # among what it has seen can be itself: nothing may live longer because of us


class _HolderSearch:
    """One search, outwards from the objects in all directions. Edges are texts and numbers only, so that the collector
    does not see them."""

    def __init__(
        self,
        frames: Iterable[FrameType],
        own: set[int],
        seconds: float,
        nearest: bool,
        tensors: list[torch.Tensor] | None,
    ) -> None:
        self.autograd = True
        self._own = own
        self._tensors = tensors
        self._nearest = nearest
        self._deadline = time.thread_time() + seconds  # others on a busy machine do not use it up
        self._stopped = False
        self._starts: dict[int, list[_Start]] = {}
        """`id` of an object -> the names that lead to it."""
        self._up: dict[int, list[tuple[int, str]]] = {}
        """`id` of an object -> objects that refer to it, and how."""
        self._kept: list[Any] = []
        """Everything that was visited, so that no `id` is used again meanwhile."""
        self._namespaces: dict[int, tuple[str, str]] = {}
        self._types: dict[int, str] = {}
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType):
                file = getattr(module, "__file__", None)
                self._namespaces[id(module.__dict__)] = (name, file if isinstance(file, str) else "")
        self._read_frames(frames)
        self._read_modules()

    def _read_frames(self, frames: Iterable[FrameType]) -> None:
        seen: set[int] = set()
        running = (one for frame in sys._current_frames().values() for one in frames_outwards(frame))
        for frame in (*frames, *running):
            if id(frame) in seen or is_ours(frame.f_code.co_filename):
                continue
            seen.add(id(frame))
            file, code = frame.f_code.co_filename, frame.f_code
            if frame.f_locals is frame.f_globals:
                # of a script that another program runs (`runpy`), whose module is nowhere
                self._namespaces.setdefault(id(frame.f_globals), (frame.f_globals.get("__name__") or "", file))
                continue
            rank = 0
            kind = kind_of(file)
            if kind == "skipped":  # torch and Python's library
                rank = 3
            elif kind == "library":
                rank = 2
            for name, value in variables(frame).items():
                start = _Start("variable", name, code.co_name, file, frame.f_lineno, rank)
                self._starts.setdefault(id(value), []).append(start)

    def _read_modules(self) -> None:
        """Globals of the script and its modules: the collector does not know those that `gc.freeze` has put away."""
        for module in list(sys.modules.values()):
            name, file = self._namespaces.get(id(getattr(module, "__dict__", None)), ("", ""))
            if name == "__main__" or (file and kind_of(file) == "user"):
                for variable, value in list(vars(module).items()):
                    self._start(value, _Start("global", variable, name, file, 0, 1))

    def name(self, names: Mapping[str, Any]) -> None:
        """Chains can begin at these."""
        self._own.add(id(names))
        for name, thing in names.items():
            self._start(thing, _Start("name", name, "", "", 0, 0))

    def run(self, wanted: Sequence[Any], most: int) -> dict[int, tuple[Holder, ...]]:
        self._kept.extend(wanted)
        known = {id(one) for one in wanted}
        edge = {id(one): one for one in self._tensors_behind(wanted)}
        known |= edge.keys()
        edge |= {id(one): one for one in wanted}
        edge = {number: one for number, one in edge.items() if not self._enough(number)}
        for _ in range(LONGEST_CHAIN):
            if not edge or self._late():
                break
            found: dict[int, Any] = {}
            self._own |= {id(edge), id(found)}
            for referrer, children in self._referrers(list(edge.values())):
                if self._lead(referrer, children) and id(referrer) not in known and len(found) < MOST_OBJECTS:
                    found[id(referrer)] = referrer
                if self._late():
                    break
            known |= found.keys()
            self._kept.extend(found.values())
            edge = {number: one for number, one in found.items() if not self._enough(number)}
        return {id(one): self._holders(one, most) for one in wanted}

    def _enough(self, number: int) -> bool:
        """Whether a name of the script's leads to an object, and one is enough."""
        return self._nearest and any(start.rank < 2 for start in self._starts.get(number, ()))

    def _late(self) -> bool:
        self._stopped = self._stopped or time.thread_time() > self._deadline
        return self._stopped

    def _referrers(self, objects: list[Any]) -> list[tuple[Any, list[Any]]]:
        """Objects that refer to some of these, and which."""
        ids = {id(one) for one in objects}
        candidates = gc.get_referrers(*objects) if len(objects) <= FEW else gc.get_objects()
        ours = {id(candidates), id(objects), id(self._kept), id(self.__dict__), id(self)}
        found = []
        for candidate in candidates:
            if id(candidate) in ours or id(candidate) in self._own or _is(candidate, *_PASSED_OVER):
                continue
            referents = gc.get_referents(candidate)
            if type(candidate) is tuple and len(candidate) != len(referents):
                continue  # another thread is making it: what is not there yet must not be looked at
            if not ids.isdisjoint(map(id, referents)) and not _is_our_object(candidate):
                found.append((candidate, [one for one in referents if id(one) in ids]))
        return found

    def _lead(self, referrer: Any, children: list[Any]) -> bool:
        """Note how a referrer leads to each child; whether what leads to the referrer is of interest."""
        ids = {id(child) for child in children}
        if type(referrer) is dict and id(referrer) in self._namespaces:
            module, file = self._namespaces[id(referrer)]
            for name, value in list(referrer.items()):
                if id(value) in ids:
                    rank = 3 if file.startswith(_TORCH) else 1
                    self._start(value, _Start("global", name, module, file, 0, rank))
            return False
        if _is(referrer, type):
            for child in children:  # the dict behind `__dict__`
                if type(child) is dict and "__module__" in child:
                    self._start(child, _Start("class", f"{referrer.__qualname__}.__dict__", "", "", 0, 1))
            return False
        if _is(referrer, types.FunctionType):
            self._function(referrer, ids)
            return False
        if _is(referrer, types.FrameType):
            self._frame(referrer, ids)
            return False
        suspended = getattr(referrer, "gi_frame", None) if _is(referrer, types.GeneratorType) else None
        if _is(referrer, types.CoroutineType):
            suspended = referrer.cr_frame
        if suspended is not None:
            self._frame(suspended, ids)
            return False
        for child, step in _steps(referrer, ids):
            self._up.setdefault(id(child), []).append((id(referrer), step))
        self._types[id(referrer)] = type(referrer).__name__
        return True

    def _start(self, value: Any, start: _Start) -> None:
        self._starts.setdefault(id(value), []).append(start)

    def _function(self, function: types.FunctionType, ids: set[int]) -> None:
        code = function.__code__
        if is_ours(code.co_filename):
            return
        name = function.__name__
        found: list[tuple[str, Any]] = []
        if id(function.__closure__) in ids:
            found += zip(code.co_freevars, function.__closure__ or (), strict=False)
        for attribute in ("__defaults__", "__kwdefaults__", "__dict__"):
            if id(getattr(function, attribute)) in ids:
                found.append((f"{name}.{attribute}", getattr(function, attribute)))
        for words, value in found:
            self._start(value, _Start("closure", words, code.co_qualname, code.co_filename, code.co_firstlineno, 1))

    def _frame(self, frame: FrameType, ids: set[int]) -> None:
        """Of a generator that waits, or that a traceback keeps."""
        code = frame.f_code
        if is_ours(code.co_filename):
            return
        for name, value in variables(frame).items():
            if id(value) in ids:
                self._start(value, _Start("variable", name, code.co_name, code.co_filename, frame.f_lineno, 1))

    def _tensors_behind(self, wanted: Sequence[Any]) -> list[Any]:
        """Tensors that keep one of these, or its memory, without a reference that Python has: those with a graph that
        has saved it, those with it for a gradient, views."""
        targets = {id(one): one for one in wanted if isinstance(one, torch.Tensor)}
        if not targets:
            return []
        memory: dict[int, list[int]] = {}
        for number, one in targets.items():
            memory.setdefault(storage_key(one), []).append(number)
        found: list[Any] = []
        self._tensors = live_tensors() if self._tensors is None else self._tensors
        self._own.add(id(self._tensors))
        for tensor in self._tensors:
            if self._late():
                break
            if id(tensor) in targets:
                continue
            leads = [(number, "a view: ") for number in memory.get(storage_key(tensor), ())]
            grown = gradient(tensor) if self.autograd else None
            if grown is not None and id(grown) in targets:
                leads = [(id(grown), ".grad")]
            elif leads and type(tensor) is torch.Tensor and type(targets[leads[0][0]]) is not torch.Tensor:
                leads = []  # what is inside a tensor of a virtual GPU
            for number, step in leads:
                self._up.setdefault(number, []).append((id(tensor), step))
            if leads:
                found.append(tensor)
        for root, steps in self._graphs(memory) if self.autograd else ():
            for number, step in steps:
                self._up.setdefault(number, []).append((id(root), step))
            found.append(root)
        self._kept.extend(found)
        return found

    def _graphs(self, memory: dict[int, list[int]]) -> Iterator[tuple[Any, list[tuple[int, str]]]]:
        roots = [(tensor, grad_fn(tensor)) for tensor in self._tensors or () if grad_fn(tensor) is not None]
        roots.sort(key=lambda pair: -pair[1]._sequence_nr())  # the last ones lead to most
        known: dict[Any, list[tuple[int, str]]] = {}
        """Node -> what it saved of these."""
        told = 0
        for root, first in roots:
            if told == MOST_ROOTS or self._late():
                return
            steps: dict[int, str] = {}
            stack, seen = [first], set()
            while stack and not self._late():
                node = stack.pop()
                if node is None or node in seen:
                    continue
                seen.add(node)
                if node not in known:
                    known[node] = []
                    for name, saved in saved_in(node):
                        words = f"the graph ({node.name()} has saved it as {name}) of "
                        known[node] += [(number, words) for number in memory.get(storage_key(saved), ())]
                steps |= dict(known[node])
                stack += [following for following, _ in node.next_functions]
            if steps:
                told += 1
                yield root, list(steps.items())

    def _holders(self, wanted: Any, most: int) -> tuple[Holder, ...]:
        """Upwards by the shortest way."""
        found: list[tuple[tuple[int, int], Holder]] = []
        names: set[tuple[str, str, str]] = set()
        line: deque[tuple[int, tuple[str, ...]]] = deque([(id(wanted), ())])
        seen = {id(wanted)}
        ends: list[Holder] = []
        while line and len(found) < 4 * most:
            number, steps = line.popleft()
            for start in self._starts.get(number, ()):
                path, through = _path(start.name, steps)
                holder = Holder(
                    kind=start.kind,
                    path=path,
                    function=start.function,
                    file=start.file,
                    line=start.line,
                    through=through,
                    stopped=self._stopped,
                )
                if (path, holder.function, holder.file) not in names:
                    names.add((path, holder.function, holder.file))
                    rank = start.rank + bool(through) + 3 * (_AS_KEY in steps)
                    found.append(((rank, len(steps)), holder))
            above = self._up.get(number, ())
            if not above and steps and number not in self._starts and number in self._types:
                path, through = _path(f"a {self._types[number]}", steps)
                ends.append(Holder(kind="object", path=path, through=through, stopped=self._stopped))
            for parent, step in above:
                if parent not in seen:
                    seen.add(parent)
                    line.append((parent, (step, *steps)))
        found.sort(key=lambda pair: pair[0])
        holders = [holder for _, holder in found[:most]]
        return tuple(holders or ends[:1] or [Holder(kind="nothing", stopped=self._stopped)])


_PASSED_OVER = (types.ModuleType, types.CodeType, _HolderSearch, types.MemberDescriptorType)


def live_tensors() -> list[torch.Tensor]:
    """Every tensor that Python knows."""
    return live_objects(torch.Tensor)


def live_objects(*kinds: type) -> list[Any]:
    """Every object of these classes that Python knows.

    No other thread may run while all objects are in a list: where one is just making a tuple of what a generator gives,
    it could not shorten it, and gets a SystemError. So the list is made, looked through and emptied in one call into C,
    in which Python changes no threads.
    """
    types = set(map(type, itertools.chain.from_iterable(map(gc.get_objects, (None,)))))
    fitting = {exact for exact in types if issubclass(exact, kinds)}
    every: list[Any] = []
    filled = itertools.chain.from_iterable(map(operator.iadd, (every,), map(gc.get_objects, (None,))))
    fits = map(fitting.__contains__, map(type, iter(every)))  # follows what is filled in
    emptied: Iterator[Any] = filter(None, map(list.clear, (every,)))
    return list(itertools.chain(itertools.compress(filled, fits), emptied))


def of_kind(objects: list[Any], *kinds: type) -> list[Any]:
    """Those of these classes, by their type alone: `__class__` can be code of the user's."""
    fitting = {exact for exact in set(map(type, objects)) if issubclass(exact, kinds)}
    return [one for one in objects if type(one) in fitting]


def _is(thing: Any, *kinds: type) -> bool:
    """`isinstance` by the type alone: `__class__` can be code of the user's."""
    return issubclass(type(thing), kinds)


def storage_key(tensor: torch.Tensor) -> int:
    """The same for tensors that share memory; 0: it has none of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse, or a wrapper
        return 0


def _steps(referrer: Any, ids: set[int]) -> Iterator[tuple[Any, str]]:
    """How an object refers to these: as Python would write what follows it."""
    if _is(referrer, dict):
        for key, value in list(referrer.items()):
            if id(value) in ids:
                yield value, f"[{_key(key)}]"
            elif id(key) in ids:
                yield key, _AS_KEY
    elif _is(referrer, list, tuple, deque):
        for index, value in enumerate(list(referrer)):
            if id(value) in ids:
                yield value, f"[{index}]"
    elif _is(referrer, set, frozenset):
        for value in list(referrer):
            if id(value) in ids:
                yield value, ", in a set"
    elif _is(referrer, types.CellType):
        yield referrer.cell_contents, ""
    elif _is(referrer, types.MethodType):
        yield from ((one, ".__self__") for one in (referrer.__self__,) if id(one) in ids)
    elif type(referrer).__name__ == "_lru_cache_wrapper":
        yield from ((one, ".cache") for one in gc.get_referents(referrer) if id(one) in ids)
    elif type(referrer).__module__ == "itertools":  # `cycle` keeps all that it has given
        words = f" (itertools.{type(referrer).__name__})"
        yield from ((one, words) for one in gc.get_referents(referrer) if id(one) in ids)
    elif _is(referrer, functools.partial):
        for name in ("args", "keywords", "func"):
            if id(getattr(referrer, name)) in ids:
                yield getattr(referrer, name), f".{name}"
    if _is(referrer, dict, list, tuple, deque, set, frozenset) and type(referrer).__module__ in (
        "builtins",
        "collections",
    ):
        return
    held = _attributes(referrer)
    if held is not None and id(held) in ids:
        yield held, ".__dict__"
    for name, value in (held or {}).items():
        if id(value) in ids:
            yield value, f".{name}"
    for kind in type(referrer).__mro__:
        for name in (one for one, what in vars(kind).items() if isinstance(what, types.MemberDescriptorType)):
            try:
                value = vars(kind)[name].__get__(referrer)
            except (AttributeError, TypeError):
                continue
            if id(value) in ids:
                yield value, f".{name}"


def _attributes(thing: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None


def _key(key: Any) -> str:
    if isinstance(key, (str, int, float, bool, type(None))):
        text = repr(key)
        return text if len(text) <= LONGEST_KEY else f"{text[:LONGEST_KEY]}…"
    return "…"


_MODULES = re.compile(r"\._(?:parameters|buffers|modules)\['([^']*)'\]")


def _path(name: str, steps: tuple[str, ...]) -> tuple[str, str]:
    """The steps behind a name as one path, and the last one where it is none of Python's."""
    through = ""
    words = name
    for step in steps:
        if step.endswith((" of ", ": ")):
            through = step.removesuffix(" ")
        elif step == ".grad" and through:
            continue
        else:
            words += step
    words = re.sub(r"\.__dict__\['(\w+)'\]", r".\1", words)
    words = _MODULES.sub(lambda match: f"[{match[1]}]" if match[1].isdigit() else f".{match[1]}", words)
    return words, through
