"""What is in the memory of a device at a moment: every live tensor, what it is for, and what holds it. The thread on
which memory ran out; no operation of torch is run, and nothing is allocated on the device.

Python's garbage collector knows every tensor that has a Python object; what autograd has saved is found in the
graphs of those. What only C++ holds (buffers of a backward that runs, workspaces of libraries) is the difference to
what the allocator counts.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from traceback import walk_tb
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from devexplorer.core.observe.alive import FEW, live_objects, of_kind, storage_key, variables
from devexplorer.core.observe.graph import grad_fn, gradient, saved_in

PARAMETERS, BUFFERS, GRADIENTS, STATE = "parameters", "buffers", "gradients", "optimizer state"
SAVED, OTHERS, TEMPORARY = "saved for backward", "other live tensors", "temporary"
MOST_NODES = 200_000
CACHE = type(lru_cache(lambda: None))
CONTAINERS = (list, tuple, dict, set, deque, CACHE)
FUNCTIONS = (FunctionType, MethodType, CellType)
"""What keeps tensors as well: with default arguments, a closure, an object of their own."""
NESTED = 5
"""Containers within containers, with the objects between them."""
NEARLY_ALL = 0.9
MOST_WRAPPERS = 20
"""So many of the largest containers are compared with what is in them."""


class FullDevice(NamedTuple):
    """A device that is full."""

    device: torch.device
    spoken: str
    """What the script calls it."""
    name: str
    simulated: bool
    capacity: int
    context: int
    """Taken by the context; on CUDA by other processes as well."""
    limit: int
    """What this process may reserve: less than the device has after `set_per_process_memory_fraction`."""
    allocated: int
    reserved: int
    largest_free: int
    size_of: Callable[[torch.Tensor], int]
    """The bytes that a tensor's storage takes there."""
    line_of: Callable[[torch.Tensor], tuple[str, int, str] | None]
    """Where that storage was made, if known."""

    @property
    def usable(self) -> int:
        """What tensors can have."""
        return min(self.capacity - self.context, self.limit)

    @property
    def free(self) -> int:
        """In pieces of any size."""
        return self.usable - self.allocated


class Piece:
    """The memory of one storage."""

    __slots__ = ("bytes", "key", "line", "name", "part", "tensors")

    def __init__(self, key: int, size: int, line: tuple[str, int, str] | None) -> None:
        self.key, self.bytes, self.line = key, size, line
        self.part, self.name = OTHERS, ""
        self.tensors: list[torch.Tensor] = []

    @property
    def largest(self) -> torch.Tensor:
        """The tensor that shows most of it."""
        return max(self.tensors, key=lambda tensor: tensor.numel())


class Root(NamedTuple):
    """A module that no other one contains."""

    module: nn.Module
    here: int
    in_all: int
    dtype: str
    signature: tuple[Any, ...]
    """Equal for models with the same architecture."""
    names: frozenset[str]
    """Of its parameters."""


class TensorGroup:
    """A container with tensors in it, in containers within it too."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self.tensors: dict[int, torch.Tensor] = {}
        self.bytes = self.graph_bytes = self.with_graph = 0
        self.members = 0
        """How many of its items lead to tensors."""

    @property
    def in_all(self) -> int:
        """Its tensors and what their graphs have saved."""
        return self.bytes + self.graph_bytes

    def wraps(self, inner: TensorGroup) -> bool:
        """Whether the other one, within this one, has nearly all of it: the list of an object with few attributes."""
        if inner.members <= self.members or inner.in_all < NEARLY_ALL * self.in_all:
            return False
        return inner.tensors.keys() <= self.tensors.keys()


class Graphs:
    """The graphs behind all live tensors."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.number: dict[Any, int] = {}
        self.below: list[list[int]] = []
        self.saved: list[list[tuple[int, torch.Tensor]]] = []
        """Of each node: storage and tensor."""
        self.variable: list[torch.Tensor | None] = []
        self.into: Counter[int] = Counter()
        """As `uses`, of all nodes."""

    def add(self, tensors: Iterable[torch.Tensor], late: Callable[[], bool]) -> None:
        """Walk the graphs of these."""
        line = [node for node in map(grad_fn, tensors) if node is not None]
        for node in line:
            self._number(node)
        at = 0
        while at < len(self.nodes) and len(self.nodes) < MOST_NODES and not (at % 256 == 0 and late()):
            node = self.nodes[at]
            at += 1
            self.saved.append([(storage_key(tensor), tensor) for _, tensor in saved_in(node)])
            variable = getattr(node, "variable", None)
            self.variable.append(variable if isinstance(variable, torch.Tensor) else None)
            children = [self._number(below) for below, _ in node.next_functions if below is not None]
            self.below.append(children)
        for rest in (self.saved, self.below):
            rest.extend([] for _ in range(len(self.nodes) - at))
        self.variable.extend([None] * (len(self.nodes) - at))
        self.into = self.uses(range(at))

    def _number(self, node: Any) -> int:
        number = self.number.get(node)
        if number is None:
            number = self.number[node] = len(self.nodes)
            self.nodes.append(node)
        return number

    def in_order(self) -> list[int]:
        """Numbers of all nodes, each after those that it leads to."""
        return sorted(range(len(self.nodes)), key=lambda number: sequence(self.nodes[number], leaf=-1))

    def behind(self, tensors: Iterable[torch.Tensor]) -> set[int]:
        """Numbers of the nodes behind these."""
        stack = [self.number[node] for node in map(grad_fn, tensors) if node in self.number]
        seen = set(stack)
        while stack:
            for child in self.below[stack.pop()]:
                if child not in seen:
                    seen.add(child)
                    stack.append(child)
        return seen

    def reach(self, tensors: Iterable[torch.Tensor]) -> set[int]:
        """Storages that the graphs of these have saved."""
        return {key for node in self.behind(tensors) for key, _ in self.saved[node]}

    def uses(self, nodes: Iterable[int]) -> Counter[int]:
        """`id` of a leaf -> how many of these operations use it."""
        found: Counter[int] = Counter()
        for node in nodes:
            for child in self.below[node]:
                variable = self.variable[child]
                if variable is not None:
                    found[id(variable)] += 1
        return found


class LiveMemory:
    """See above. `step_mark`: the number of autograd's sequence at the last step of an optimizer; 0: there was none.
    `containers`: they will be looked for, among all objects; not while the script goes on (`live_objects`)."""

    def __init__(self, card: FullDevice, step_mark: int, seconds: float, *, containers: bool = False) -> None:
        self.card = card
        self.stepped = step_mark > 0
        """An optimizer has made a step."""
        self.began = time.monotonic()
        self._deadline = time.thread_time() + seconds
        self.stopped = False
        self.pieces: dict[int, Piece] = {}
        self.roots: list[Root] = []
        self.optimizers: list[Any] = []
        self.names: dict[int, str] = {}
        """`id` of a parameter -> its path in its model."""
        self.owner: dict[int, Root] = {}
        """`id` of a parameter -> its model."""
        self.graphs = Graphs()
        self.passes = 0
        self.earlier_bytes = 0
        self.layers: list[tuple[str, str, int]] = []
        self.containers: list[TensorGroup] = []
        self.errors: TensorGroup | None = None
        """The exception that keeps most, with the tensors of all of them; `find_errors`."""
        self.held: set[int] = set()
        """`id` of tensors that a container or an object of the script's refers to; `find_containers`."""
        self._objects = gc.get_objects() if containers else []
        """Everything that was there before us."""
        known = live_objects(torch.Tensor, nn.Module, Optimizer)
        self.tensors = tensors = of_kind(known, torch.Tensor)
        self._add(tensors)
        self._models(of_kind(known, nn.Module))
        self._optimizers(of_kind(known, Optimizer))
        self._gradients(tensors)
        self.graphs.add(tensors, self.late)
        self._saved(step_mark)

    def late(self) -> bool:
        """Whether the time is used up."""
        self.stopped = self.stopped or time.thread_time() > self._deadline
        return self.stopped

    def _add(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor.device == self.card.device:
                self._piece(tensor)

    def _piece(self, tensor: torch.Tensor) -> Piece | None:
        key = storage_key(tensor)
        if not key or tensor.device != self.card.device:
            return None
        piece = self.pieces.get(key)
        if piece is None:
            size = self.card.size_of(tensor)
            if not size:
                return None
            piece = self.pieces[key] = Piece(key, size, self.card.line_of(tensor))
        if not any(one is tensor for one in piece.tensors):
            piece.tensors.append(tensor)
        return piece

    def _is(self, tensor: torch.Tensor, part: str, name: str) -> int:
        """Say what a tensor is for, where that is not known yet; returns the bytes that it takes here."""
        piece = self._piece(tensor)
        if piece is None or piece.part not in (OTHERS, SAVED):
            return 0
        piece.part, piece.name = part, name
        return piece.bytes

    def _models(self, modules: list[nn.Module]) -> None:
        modules = [
            module for module in modules if "_modules" in module.__dict__
        ]  # one that is being copied has none yet
        inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
        for module in modules:
            if id(module) in inner:
                continue
            try:
                parameters = list(module.named_parameters())
            except Exception:  # code of the user's, or a module that is being made
                continue
            if not parameters:
                continue
            here, in_all, dtypes = 0, 0, Counter[str]()
            for part, named in ((PARAMETERS, parameters), (BUFFERS, list(module.named_buffers()))):
                for name, tensor in named:
                    self.names.setdefault(id(tensor), name)
                    here += self._is(tensor, part, name)
                    in_all += _nbytes(tensor)
                    if part == PARAMETERS:
                        dtypes[str(tensor.dtype).removeprefix("torch.")] += _nbytes(tensor)
            shapes = tuple(tuple(tensor.shape) for _, tensor in parameters)
            dtype = dtypes.most_common(1)[0][0]
            names = frozenset(name for name, _ in parameters)
            root = Root(module, here, in_all, dtype, (type(module), shapes), names)
            self.roots.append(root)
            for _, tensor in parameters:
                self.owner.setdefault(id(tensor), root)
        self.roots.sort(key=lambda root: -root.here)

    def _optimizers(self, optimizers: list[Any]) -> None:
        for optimizer in optimizers:
            if _wraps_another(optimizer):
                continue
            self.optimizers.append(optimizer)
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self._is(parameter, PARAMETERS, self.names.get(id(parameter), ""))
            for parameter, state in list(optimizer.state.items()):
                for what, tensor in tensors_in(state):
                    self._is(tensor, STATE, f"{what} of {self.names.get(id(parameter), 'a parameter')}")

    def _gradients(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if isinstance(tensor, nn.Parameter):  # one that is in no module, or not yet
                self._is(tensor, PARAMETERS, "")
            own = gradient(tensor)
            if own is not None:
                self._is(own, GRADIENTS, f"gradient of {self.names.get(id(tensor), 'a leaf')}")

    def _saved(self, step_mark: int) -> None:
        graphs = self.graphs
        layer, model = self._layers()
        counted: dict[int, tuple[int, int]] = {}
        """Storage -> the earliest node that has saved it, and its place in the sequence."""
        for number in range(len(graphs.nodes)):
            at = sequence(graphs.nodes[number])
            for key, tensor in graphs.saved[number]:
                piece = self._piece(tensor)
                if piece is None or piece.part not in (OTHERS, SAVED):
                    continue
                piece.part = SAVED
                if key not in counted or at < counted[key][1]:
                    counted[key] = number, at
        sums: Counter[tuple[str, str]] = Counter()
        several = len({model[number] for number, _ in counted.values() if layer[number]}) > 1
        for key, (number, at) in counted.items():
            name = layer[number]
            if several and name:
                name = f"{model[number]}.{name}"
            sums[name, _operation(graphs.nodes[number])] += self.pieces[key].bytes
            if at < step_mark:
                self.earlier_bytes += self.pieces[key].bytes
        self.layers = [(*names, size) for names, size in sums.most_common(20)]
        self.passes = self.passes_in(graphs.into)

    def passes_in(self, uses: Counter[int]) -> int:
        """Forward passes, of the model with most: each uses every parameter at least once."""
        least: dict[int, int] = {}
        for number, count in uses.items():
            if number in self.owner:
                model = id(self.owner[number].module)
                least[model] = min(count, least.get(model, count))
        return max(least.values(), default=0)

    def _layers(self) -> tuple[dict[int, str], dict[int, str]]:
        """Of each node the layer whose parameters it uses, or that is before it, and the class of its model. Of those
        that it could be using (the first layers lead to nothing but parameters, either) it uses the nearest."""
        graphs = self.graphs
        names: dict[int, str] = {}
        models: dict[int, str] = {}
        only: dict[int, bool] = {}
        depth: dict[int, int] = {}
        for number in graphs.in_order():
            variable, children = graphs.variable[number], graphs.below[number]
            depth[number] = 1 + max((depth.get(child, 0) for child in children), default=-1)
            if variable is not None:
                only[number] = True
                names[number] = self.names.get(id(variable), "").rpartition(".")[0]
                owner = self.owner.get(id(variable))
                models[number] = "" if owner is None else type(owner.module).__name__
                continue
            only[number] = bool(children) and all(only.get(child, False) for child in children)
            own = [child for child in children if only.get(child) and names.get(child)]
            before = max((child for child in children if child in names), default=None, key=self._sequence_at)
            if own:
                before = min(own, key=depth.__getitem__)
            names[number] = "" if before is None else names[before]
            models[number] = "" if before is None else models[before]
        return names, models

    def _sequence_at(self, number: int) -> int:
        return sequence(self.graphs.nodes[number], leaf=-1)

    def find_containers(self, skipped: set[int]) -> None:
        """Lists, dicts and so on with several tensors that are no part of a model; `skipped`: namespaces."""
        level: dict[int, tuple[Any, dict[int, torch.Tensor]]] = {}
        for piece in self.pieces.values():
            if piece.part in (OTHERS, SAVED):
                level |= {id(one): (one, {id(one): one}) for one in piece.tensors}
        found: dict[int, TensorGroup] = {}
        kinds = {kind for kind in set(map(type, self._objects)) if _can_hold(kind)}
        there = set(map(id, self._objects))
        for depth in range(NESTED):
            above: dict[int, tuple[Any, dict[int, torch.Tensor]]] = {}
            few = len(level) <= FEW
            candidates = gc.get_referrers(*(one for one, _ in level.values())) if few else self._objects
            for thing in candidates:
                if type(thing) not in kinds or id(thing) in skipped or id(thing) in found or id(thing) not in there:
                    continue
                referents = gc.get_referents(thing)
                if level.keys().isdisjoint(map(id, referents)):
                    continue
                members = [level[id(one)][1] for one in referents if id(one) in level]
                if not depth:
                    self.held.update(id(one) for one in referents if id(one) in level)
                tensors = {key: tensor for member in members for key, tensor in member.items()}
                above[id(thing)] = thing, tensors
                if issubclass(type(thing), CONTAINERS):
                    held = found[id(thing)] = TensorGroup(thing)
                    held.tensors, held.members = tensors, len(members)
            level = above
            if not level or self.late():
                break
        self.containers = [held for held in found.values() if held.members >= 2 and len(held.tensors) >= 3]
        self._weigh()

    def find_errors(self, frames: Iterable[FrameType]) -> None:
        """What exceptions keep by their tracebacks: variables of functions that have ended. `frames`: of the script."""
        running = _running(frames)
        largest = 0
        together: dict[int, torch.Tensor] = {}
        for error in of_kind(self._objects, BaseException):
            held = TensorGroup(error)
            for frame, _ in walk_tb(error.__traceback__):
                if id(frame) in running:
                    continue
                for value in variables(frame).values():
                    if isinstance(value, torch.Tensor) and storage_key(value) in self.pieces:
                        held.tensors[id(value)] = value
            self._weigh_one(held)
            together |= held.tensors
            if held.in_all > largest:
                largest, self.errors = held.in_all, held
        if self.errors is not None:
            self.errors.tensors = together
            self._weigh_one(self.errors)

    def _weigh_one(self, held: TensorGroup) -> None:
        keys = {storage_key(tensor) for tensor in held.tensors.values()}
        held.bytes = sum(self.pieces[key].bytes for key in keys if key in self.pieces)
        with_graph = [tensor for tensor in held.tensors.values() if grad_fn(tensor) is not None]
        held.with_graph = len(with_graph)
        saved = self.graphs.reach(with_graph) if with_graph and not self.late() else set()
        held.graph_bytes = self.saved_in(saved - keys)

    def _weigh(self) -> None:
        for held in self.containers:
            self._weigh_one(held)
        self.containers.sort(key=lambda held: (-held.in_all, -held.members))
        for outer in self.containers[:MOST_WRAPPERS]:
            if any(outer.wraps(inner) for inner in self.containers):
                self.containers.remove(outer)

    def forget(self) -> None:
        """Let go of everything: what was there before us holds the variable that holds this, a circle that would keep
        the script's tensors."""
        self.graphs.__dict__.clear()
        self.__dict__.clear()

    def own(self) -> set[int]:
        """Ids of what refers to tensors here and is ours."""
        graphs = self.graphs
        lists: list[Any] = [*graphs.saved, *(pair for saved in graphs.saved for pair in saved)]
        lists += [piece.tensors for piece in self.pieces.values()]
        lists += [held.tensors for held in self.containers]
        lists += [
            self._objects,
            self.tensors,
            self.roots,
            self.optimizers,
            self.containers,
            graphs.variable,
            graphs.saved,
        ]
        lists += [self.__dict__, graphs.__dict__, *(held.__dict__ for held in self.containers)]
        if self.errors is not None:
            lists += [self.errors, self.errors.tensors, self.errors.__dict__]
        return {id(one) for one in (*lists, *self.roots, *self.containers, *self.pieces.values())}

    def saved_in(self, keys: Iterable[int]) -> int:
        """Bytes of those of these storages that are saved for backward and nothing else."""
        pieces = (self.pieces[key] for key in keys if key in self.pieces)
        return sum(piece.bytes for piece in pieces if piece.part == SAVED)

    def bytes_of(self, part: str) -> int:
        """Of all tensors of this part."""
        return sum(piece.bytes for piece in self.pieces.values() if piece.part == part)


def _can_hold(kind: type) -> bool:
    """Whether an object of this class can be a container of the user's, or lie between two of them."""
    if kind in CONTAINERS or kind in FUNCTIONS:
        return True
    return kind.__module__ not in ("builtins", "types", "functools") and not issubclass(
        kind, (torch.Tensor, nn.Module, Optimizer, type, LiveMemory, Graphs, Piece, TensorGroup, Root, BaseException)
    )


def _running(frames: Iterable[FrameType]) -> set[int]:
    """`id` of these, and of all that run or wait on any thread."""
    running = set(map(id, frames))
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            running.add(id(frame))
            frame = frame.f_back
    del innermost  # it can be this function's own, which would keep all of them
    return running


def _nbytes(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.nbytes)
    except (RuntimeError, ValueError, NotImplementedError):  # lazy, or of no fixed layout
        return 0


def _wraps_another(optimizer: Any) -> bool:
    """As those of accelerate and Lightning do: it has the groups and the state of the one inside."""
    for value in vars(optimizer).values():
        if issubclass(type(value), Optimizer) and value.param_groups is optimizer.param_groups:
            return True
    return False


def tensors_in(value: Any, name: str = "", depth: int = 4) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested containers, with the name of the first key that led to each."""
    if isinstance(value, torch.Tensor):
        yield name or "state", value
    elif depth and isinstance(value, dict):
        for key, inner in list(value.items()):
            yield from tensors_in(inner, name or str(key), depth - 1)
    elif depth and isinstance(value, (list, tuple, deque)):
        for inner in list(value):
            yield from tensors_in(inner, name, depth - 1)


def sequence(node: Any, leaf: int = 1 << 63) -> int:
    """When a node was made, among those of its thread; leaves have no such number."""
    number = int(node._sequence_nr())
    return leaf if number >= 1 << 62 else number


def _operation(node: Any) -> str:
    """`LeakyRelu`, of `LeakyReluBackward1` too: in place it has another number."""
    name = str(node.name()).rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")
    return name.replace("FusedAttentionOverrideable", "Attention")  # what torch calls it on virtual GPUs
