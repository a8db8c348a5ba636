"""Lets activations follow the parts of a split model: each part fetches what it is given to its own device. Runs on the
jobs thread.

A part is a module whose tensors are all on one device, whatever that is when it runs: a part that moves takes its hops
along. A module in pieces fetches to where the tensors are that it holds itself, and nowhere when it holds none; for the
functions in its own forward there is `CrossDeviceMode`. The output of the whole model goes to where its input came
from, so that code around it need not know of any of this. Copies are `Tensor.to`, which autograd follows back.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import operator
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.hooks import RemovableHandle

from devexplorer.core.base import Clock, writes_in_place
from devexplorer.core.devices.accelerator import is_out_of_memory
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import CrossingHooks, FetchHook, device_id
from devexplorer.core.records import Answer, Hop
from devexplorer.core.split import messages
from devexplorer.core.split.planner import holds_tensors, own_tensors, tensors_below
from devexplorer.core.split.records import Hopped
from devexplorer.core.workspace import ObjectChange, Timing, Workspace


class DeviceCrossings:
    """Hooks on one model, and what hopped during its latest forward. Nothing is hooked before `attach`."""

    def __init__(self, model: nn.Module, registry: DeviceRegistry, wall: Clock = time.perf_counter) -> None:
        self._model = model
        self._forward = _Forward(registry, wall)
        self._handles: list[RemovableHandle] = []

    @property
    def latest(self) -> tuple[Hop, ...]:
        """The hops of the latest forward, in their order."""
        return tuple(self._forward.hops)

    def attach(self) -> None:
        """Hook every module that has tensors, itself or below."""
        for path, module in self._model.named_modules():
            if module is self._model or holds_tensors(module):
                hook = Fetch(self._forward, path)
                self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
                leave = Leave(self._forward, path)
                self._handles.append(module.register_forward_hook(leave, with_kwargs=True, always_call=True))

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._forward.forget()

    def told(self, name: str, answer: Answer) -> tuple[Answer, Hopped]:
        """The answer of a forward with the hops in it, and the event that says them."""
        return messages.with_hops(answer, self.latest), Hopped(target=name, hops=self.latest)

    def python(self, name: str) -> str:
        """What puts them on the model of this name."""
        return messages.follow(name)

    def python_of_opened(self, name: str) -> str:
        """What gives those of a model that came with a workspace file their variable."""
        return messages.opened_hops(name)


class CrossingsChange(ObjectChange):
    """Hops that were inserted in a model, or removed from it. Makes the change itself, so that it knows what was
    before."""

    def __init__(self, workspace: Workspace, name: str, hops: CrossingHooks | None) -> None:
        super().__init__(name, None)
        self._previous = self.exchange(workspace, hops)

    def exchange(self, workspace: Workspace, state: CrossingHooks | None) -> CrossingHooks | None:
        """Put these hops in place of those that are there."""
        extras = workspace.extras(self.name)
        previous, extras.hops = extras.hops, state
        if previous is not None:
            previous.remove()
        if state is not None:
            state.attach()
        return previous


class _Hook:
    """In a copy of the model, or in a file of it, there is something in its place that does nothing and that every
    Python has."""

    def __init__(self, forward: _Forward, path: str) -> None:
        self._forward, self._path = forward, path

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.attrgetter("__exit__"), (
            contextlib.nullcontext(),
        )  # builtins.getattr in a file looks like an attack


class Fetch(_Hook, FetchHook):
    """Before a module runs: brings its inputs to its device."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The inputs as the module should get them; None: as they are."""
        if self._path == "":
            self._forward.begin()
        if self._forward.settled:
            return None
        self._forward.enter(module, self._path, (args, kwargs))
        device, whole = home(module)
        if whole:
            self._forward.settle()
        if device is None:
            return None
        fetched: tuple[Any, Any] = self._forward.fetch((args, kwargs), device, self._path)
        return fetched


class Leave(_Hook):
    """After a module has run, or failed: notes what it made, and brings the model's output home."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """The output as the caller should get it; None: as it is."""
        return self._forward.leave(module, self._path, output)


def home(module: nn.Module) -> tuple[torch.device | None, bool]:
    """The device to which a module fetches its inputs, None: to none; and whether everything in it is there."""
    devices = (tensor.device for tensor in (*own_tensors(module), *tensors_below(module)))
    first = next(devices, None)
    if first is not None and all(device == first for device in devices):
        return first, True
    return next((tensor.device for tensor in own_tensors(module)), None), False


class _Forward:
    """One forward of a model as it goes."""

    def __init__(self, registry: DeviceRegistry, wall: Clock) -> None:
        self.hops: list[Hop] = []
        self._registry, self._wall = registry, wall
        self.settled = False
        """A module is at work that is on one device: what is inside of it has nothing to fetch."""
        self._paused = False
        self._running: list[tuple[nn.Module, str]] = []
        self._cross_device_mode: Any = CrossDeviceMode(
            lambda values, device: self.fetch(values, device, self._running[-1][1])
        )
        self._input_device: torch.device | None = None
        self._makers: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        """`id()` of an activation -> the activation, and the path of the outermost module that has returned it."""
        self._last_maker = ""
        self._copies: dict[tuple[int, torch.device], tuple[Tensor, int, Tensor, int]] = {}
        """What has been fetched already (a mask that every layer gets hops once): original and copy with their
        versions."""

    def begin(self) -> None:
        """The whole model begins."""
        if self._running:  # the forward before was interrupted: no hook reported its end
            self._end()

    def enter(self, module: nn.Module, path: str, given: Any) -> None:
        """A module begins; the first one begins the forward."""
        if not self._running:
            self.forget()
            self._cross_device_mode.__enter__()
            self.hops = []
            tensors = list(_tensors(given))
            self._input_device = tensors[0].device if tensors else None
            self._note(tensors, "")
        self._running.append((module, path))

    def settle(self) -> None:
        """The module that has just begun is on one device: neither its parts nor its functions need help."""
        self.settled = True
        if _get_current_function_mode_stack()[-1:] == [
            self._cross_device_mode
        ]:  # else the model's own code has one on top of it
            self._cross_device_mode.__exit__(None, None, None)
            self._paused = True

    def _unsettle(self) -> None:
        self.settled = False
        if self._paused:
            self._cross_device_mode.__enter__()
            self._paused = False

    def leave(self, module: nn.Module, path: str, output: Any) -> Any:
        """A module has ended; an error has taken others with it."""
        if (self.settled and self._running[-1][0] is not module) or not any(
            item is module for item, _ in self._running
        ):
            return None
        self._unsettle()
        while self._running[-1][0] is not module:
            self._running.pop()
        if len(self._running) > 1:
            self._running.pop()
            self._note(_tensors(output), path)
            return None
        try:
            if path == "" and output is not None and self._input_device is not None:
                return self.fetch(output, self._input_device, "")
            return None
        finally:
            self._end()

    def _end(self) -> None:
        self.forget()
        if any(mode is self._cross_device_mode for mode in _get_current_function_mode_stack()):
            self._cross_device_mode.__exit__(None, None, None)

    def forget(self) -> None:
        """Let go of every activation."""
        self.settled = self._paused = False
        self._running.clear()
        self._makers.clear()
        self._copies.clear()
        self._last_maker = ""

    def fetch(self, values: Any, device: torch.device, path: str) -> Any:
        """The values with every tensor in them on the device."""
        tensors = [tensor for tensor in _tensors(values) if tensor.device != device]
        if not tensors:
            return values
        for before, source, group in self._by_maker(tensors, device):
            self._hop(before, path, source, device, group)
        return _mapped(
            values, lambda tensor: tensor if tensor.device == device else self._copies[id(tensor), device][2]
        )

    def _by_maker(self, tensors: list[Tensor], device: torch.device) -> list[tuple[str, str, list[Tensor]]]:
        """What has not been fetched yet, each once: where it was made, where it is, and the tensors of that kind: they
        are one hop."""
        groups: dict[tuple[str, str], list[Tensor]] = {}
        for tensor in {id(tensor): tensor for tensor in tensors}.values():
            known = self._copies.get((id(tensor), device))
            if known is None or known[1] != _version(known[0]) or known[3] != _version(known[2]):
                maker = self._makers.get(id(tensor))
                before = maker[1] if maker is not None and maker[0]() is tensor else self._last_maker
                groups.setdefault((before, device_id(tensor.device)), []).append(tensor)
        return [(before, source, group) for (before, source), group in groups.items()]

    def _hop(self, before: str, after: str, source: str, device: torch.device, tensors: list[Tensor]) -> None:
        destination = device_id(device)
        timing = Timing(self._registry, [destination], [source], self._wall)
        fetched = [tensor.to(device) for tensor in tensors]
        seconds, _ = timing.stop()
        for tensor, clone in zip(tensors, fetched, strict=True):
            self._copies[id(tensor), device] = (tensor, _version(tensor), clone, _version(clone))
        hop = Hop(
            before=before,
            after=after,
            source=source,
            destination=destination,
            bytes=sum(tensor.nbytes for tensor in tensors),
            seconds=seconds,
            simulated=timing.simulated,
        )
        self.hops.append(hop)

    def _note(self, tensors: Iterable[Tensor], path: str) -> None:
        noted = False
        for tensor in tensors:
            self._makers[id(tensor)] = (weakref.ref(tensor), path)
            noted = True
        if noted:
            self._last_maker = path


def _version(tensor: Tensor) -> int:
    """How often it was written to; tensors of `torch.inference_mode` do not count that."""
    return 0 if tensor.is_inference() else tensor._version


def _tensors(values: Any) -> Iterator[Tensor]:
    """Every tensor in nested lists, tuples, dicts and dataclasses, and whatever else is registered with torch's
    pytrees."""
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor):
            yield leaf
        elif _is_record(leaf):
            for field in dataclasses.fields(leaf):
                yield from _tensors(getattr(leaf, field.name))


def _mapped(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest with other tensors; dataclasses are copied, not created again."""

    def leaf(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        if not _is_record(value) or next(_tensors(value), None) is None:
            return value
        clone = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(clone, field.name, _mapped(getattr(value, field.name), change))
        return clone

    return tree_map(leaf, values)


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


class CrossDeviceMode(TorchFunctionMode):
    """On during the forward of a model with hops: lets functions between the modules (`query * item`, a residual sum)
    work on tensors from several devices, as hooks let modules.

    A function that PyTorch refuses because its tensors are on several devices is called once more with all of them on
    one: where a Parameter among them is, else where the first is, and always where the first is when it is written to.
    `fetch(values, device)` returns the values with every tensor on the device.
    """

    def __init__(self, fetch: Callable[[Any, torch.device], Any]) -> None:
        super().__init__()
        self._fetch = fetch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError as error:
            device = None if is_out_of_memory(error) else _common_device(func, args, kwargs)
            if device is None:
                raise
        args, kwargs = self._fetch((args, kwargs or {}), device)
        return func(*args, **kwargs)


def _common_device(func: Any, args: Any, kwargs: Any) -> torch.device | None:
    """None: they are on one device already."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if len({tensor.device for tensor in tensors}) < 2:
        return None
    parameter = next((tensor for tensor in tensors if isinstance(tensor, nn.Parameter)), None)
    return (
        tensors[0].device if parameter is None or writes_in_place(getattr(func, "__name__", "")) else parameter.device
    )
