"""Where every tensor of a forward comes from: an attribute, an input, a line that made it. The thread that is watched.

What a model holds when watching begins is held here too, so that no identity is used twice meanwhile; of results there
are only weak references (never of parameters: what has one cannot be moved in place).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from torch import Tensor, UntypedStorage, nn

from devexplorer.core.doctor.code.origins import MadeTensor, Origins
from devexplorer.core.doctor.findings.collector import Effect
from devexplorer.core.doctor.static.model_context import hidden, inner, joined
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models import RegisteredIds, named_modules
from devexplorer.core.models.walk import computed_by_torch

SWEEP_AT = 20_000
"""Results that are remembered before the dead ones among them are forgotten; as many as live then may come until the
next time, because training keeps all of them alive."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tensor comes from."""

    kind: str
    """`parameter`, `buffer`, `computed` (by a hook of torch's, whenever its layer is called), `attribute` (not
    registered), `hidden` (of a module that is not registered), `input`, `factory`, `output` (of a module), `result` (of
    an operation), `copy` (that forward made on another device), `variable` (a name in user code, such as a global),
    `held` (by a hook), `earlier` (made before the run, no name is known), `gradient`, `unknown`."""
    path: str = ""
    """In the model: `encoder.0.mask`; of an input its number; of what forward made, the module that did it; of a
    variable its name."""
    owner: str = ""
    """Path of the module that holds the attribute."""
    name: str = ""
    """The attribute after its owner: `mask`, `cache['key']`."""
    op: str = ""
    """What made it: `torch.zeros`."""
    place: SourceLocation | None = None
    """Where it was made."""
    derived: bool = False
    """Whether the tensor was computed from this rather than being it."""
    beside: frozenset[str] = frozenset()
    """Paths of what else of the model that is not registered it was computed from."""
    of_module: bool = False
    """Whether a module's constructor made it: `op` is the module's class then, and `place` where that is called."""
    named_device: bool = False
    """Whether the call that made it says a device itself."""
    cast: bool = False
    """Whether its dtype was asked for explicitly."""

    @property
    def operands(self) -> frozenset[str]:
        """The paths in the model that a finding about this tensor is about."""
        return self.beside | {self.path} if self.kind in _IN_MODEL else self.beside

    def description(self, at: str = "") -> str:
        """For a sentence; `at` is the path of the module at work, whose attributes are `self.…`."""
        name = self._named(at)
        return f"what was computed from {name}" if self.derived else name

    def capital(self, at: str = "") -> str:
        """For the beginning of a sentence; names stay as they are."""
        text = self.description(at)
        is_name = self.kind in ("attribute", "hidden", "variable") and not self.derived
        return text if is_name else text[:1].upper() + text[1:]

    def _named(self, at: str) -> str:
        at_line = f" ({line(self.place)})" if self.place is not None else ""
        words = _WORDS.get(self.kind, "a tensor from elsewhere").format(
            path=self.path,
            whole=self.path or "the model",
            within=f" in {self.path}" if self.path else "",
            owner=self.owner or "the model",
            name=self.name,
            op=self.op,
            at=at_line,
        )
        if self.kind in ("attribute", "hidden"):
            words = self.attribute(at)
        elif self.kind not in _NOT_REGISTERED and self.kind != "earlier":
            return words
        if at_line and self.op:
            return f"{words} (made by {self.op} at {line(self.place)}, never moved)"
        if self.kind in ("attribute", "hidden"):
            set_at = f"set at {line(self.place)}, " if at_line else ""
            return f"{words} ({set_at}not registered)"
        return words

    def attribute(self, at: str) -> str:
        """The attribute as Python would write it in the module at `at`."""
        if self.kind == "hidden":
            return self.path
        return f"self.{self.name}" if self.owner == at else joined(self.owner, self.name)


_WORDS = {
    "parameter": "parameter {path}",
    "buffer": "buffer {path}",
    "computed": "{path}, which a hook computes when the layer is called,",
    "variable": "{path}",
    "held": "a tensor that the {name} of {owner} holds",
    "earlier": "a tensor that was made before",
    "input": "input {path}",
    "output": "output of {whole}",
    "factory": "what {op} made in this forward{at}",
    "copy": "the copy that {op} made in this forward{at}",
    "result": "result of {op}{within}{at}",
    "gradient": "a gradient",
}
"""Kind of origin -> what it is called."""
_NOT_REGISTERED = ("attribute", "hidden", "variable", "held")
_IN_MODEL = ("parameter", "buffer", "attribute", "hidden", "held", "output", "result")
UNKNOWN, GRADIENT = Origin("unknown"), Origin("gradient")


def line(place: SourceLocation | None) -> str:
    """`net.py:12`."""
    return "" if place is None else f"{PurePath(place.file).name}:{place.line}"


def _unregistered(module: nn.Module, known: RegisteredIds) -> list[tuple[str, Tensor | nn.Module, bool]]:
    """What a module holds besides what is registered, as Python would write it after the module, and whether a hook
    holds it."""
    found: list[tuple[str, Tensor | nn.Module, bool]] = []
    try:
        for attribute in hidden(module, known):
            for item in attribute.things:
                if isinstance(item.thing, (Tensor, nn.Module)):
                    rest = item.path.removeprefix(attribute.name)
                    name = item.path if rest.startswith((".", "[")) else attribute.name
                    found.append((name, item.thing, attribute.hook is not None))
    except Exception:  # user code raised; it will raise again when it runs
        pass
    return found


class Sources:
    """Remembers what a model and its inputs are, and what becomes of them."""

    def __init__(self, model: nn.Module, origins: Origins | None, inputs: Sequence[Tensor]) -> None:
        self._origins = origins
        self._held: dict[int, tuple[Tensor, Origin]] = {}
        self._unregistered: dict[str, Tensor] = {}
        self._made: dict[int, tuple[weakref.ref[Tensor], Origin]] = {}
        self._sweep_at = SWEEP_AT
        self._memory: dict[int, tuple[weakref.ref[UntypedStorage], Origin]] = {}
        """Storages that factories have made: a Parameter around one is another tensor."""
        self._replicas: list[nn.Module] = []
        self.paths: dict[int, str] = {}
        """`id()` of each module, those that are not registered too, -> its path."""
        for number, tensor in enumerate(inputs):
            self._held.setdefault(id(tensor), (tensor, Origin("input", path=str(number))))
        self.used: dict[str, set[Effect]] = {}
        """Paths of tensors that are not registered and took part in the run -> how."""
        self.backward = False
        """Whether backward is under way: an unknown tensor is a gradient then."""
        self._model: nn.Module | None = model
        self._walk(model, "")

    def _walk(self, root: nn.Module, prefix: str, hidden: bool = False) -> None:
        modules = named_modules(root, prefix)
        known = RegisteredIds(modules)
        for path, module in modules:
            if id(module) in self.paths:
                continue
            self.paths[id(module)] = path
            for register, kind in ((module._parameters, "parameter"), (module._buffers, "buffer")):
                for name, tensor in list(register.items()):
                    self._hold(tensor, "hidden" if hidden else kind, path, name)
            for name in computed_by_torch(module):
                self._hold(vars(module).get(name), "computed", path, name)
            for name, thing, by_hook in _unregistered(module, known):
                if isinstance(thing, Tensor):
                    self._hold(thing, "held" if by_hook else "attribute", path, name)
                elif id(thing) not in self.paths:
                    self._walk(thing, joined(path, name), True)

    def add_replica(self, module: nn.Module, path: str) -> None:
        """The parts of a copy that DataParallel made are called as those that were copied."""
        for below, part in named_modules(module, path):
            self._replicas.append(part)  # so that no identity is used twice
            self.paths[id(part)] = below
            for name, tensor in (vars(part).get("_former_parameters") or {}).items():
                self._hold(tensor, "parameter", below, name)
            for name, tensor in part._buffers.items():
                self._hold(tensor, "buffer", below, name)

    def left_in_replica(self, parameter: Origin) -> Origin | None:
        """The plain container through which a replica reaches a parameter of what was copied; None: there is none."""
        if parameter.kind not in ("parameter", "buffer"):
            return None
        holder = parameter.path.rpartition(".")[0]
        for path, module in named_modules(self._model) if self._model is not None else ():
            for name, thing, _ in _unregistered(module, RegisteredIds([])):
                below = self.paths.get(id(thing)) or "?"
                own = id(thing) in self._held and self._held[id(thing)][1] == parameter
                if own or f"{holder}.".startswith(f"{below}."):
                    plain = name.partition("[")[0]
                    return self.placed(Origin("attribute", joined(path, plain), path, plain))
        return None

    def _hold(self, tensor: Any, kind: str, owner: str, name: str) -> None:
        if not isinstance(tensor, Tensor):
            return
        origin = Origin(kind, joined(owner, name), owner, name)
        self._held.setdefault(id(tensor), (tensor, origin))
        if kind in _NOT_REGISTERED:
            self._unregistered.setdefault(origin.path, tensor)

    def forget(self) -> None:
        """Let go of everything."""
        self._held.clear()
        self._unregistered.clear()
        self._made.clear()
        self._memory.clear()
        self.paths.clear()
        self._replicas.clear()
        self._model = None

    def use(self, tensors: Sequence[Tensor], effect: Effect = Effect.ON_CPU) -> None:
        """These took part in the run, with this effect."""
        for tensor in tensors:
            held = self._held.get(id(tensor))
            if held is not None and held[1].kind in ("attribute", "hidden"):
                self.used.setdefault(held[1].path, set()).add(effect)

    def note(self, tensor: Tensor, origin: Origin) -> None:
        """A call has made this tensor."""
        if id(tensor) in self._held or isinstance(tensor, nn.Parameter):
            return
        if len(self._made) >= self._sweep_at:
            self._made = {key: made for key, made in self._made.items() if made[0]() is not None}
            self._memory = {key: held for key, held in self._memory.items() if held[0]() is not None}
            self._sweep_at = max(SWEEP_AT, 2 * len(self._made))
        self._made[id(tensor)] = weakref.ref(tensor), origin
        if origin.kind == "factory" and not origin.derived:
            storage = _storage(tensor)
            if storage is not None:
                self._memory[id(storage)] = weakref.ref(storage), origin

    def drop(self, *tensors: Tensor) -> None:
        """Forget where these come from."""
        for tensor in tensors:
            self._made.pop(id(tensor), None)

    def known(self, tensor: Tensor) -> Origin | None:
        """What is remembered of it."""
        made = self._made.get(id(tensor))
        if made is not None and made[0]() is tensor:
            return made[1]
        if id(tensor) in self._held:
            return self._held[id(tensor)][1]
        if isinstance(tensor, nn.Parameter):
            storage = _storage(tensor)
            memory = self._memory.get(id(storage))
            if memory is not None and memory[0]() is storage:
                return memory[1]
        return None

    def of(self, tensor: Tensor) -> Origin:
        """Everything that can be found out, the line included that made it before forward began."""
        origin = self.known(tensor)
        if origin is None:
            made = self._built(tensor)
            if made is None:
                return GRADIENT if self.backward else UNKNOWN
            return Origin("earlier", op=made.op, place=made.place)
        return self.placed(origin, tensor)

    def placed(self, origin: Origin, tensor: Tensor | None = None) -> Origin:
        """The same with the line that made an attribute."""
        if origin.kind not in _NOT_REGISTERED or origin.place is not None:
            return origin
        made = self._built(self._unregistered.get(origin.path, tensor))
        place = None
        if origin.name and self._origins is not None and self._model is not None:
            with suppress(AttributeError):  # a module that is hidden itself
                module = self._model.get_submodule(origin.owner)
                place = self._origins.attribute(module, origin.name.partition("[")[0])
        if made is not None and (place is None or not place.library):
            return replace(origin, op=made.op, place=made.place)
        return origin if place is None else replace(origin, op="", place=place)

    def _built(self, tensor: Tensor | None) -> MadeTensor | None:
        return None if self._origins is None or tensor is None else self._origins.tensor(tensor)


def former_parameters(module: nn.Module) -> Iterator[Tensor]:
    """What were the parameters of the module that DataParallel has copied."""
    for _, part in named_modules(module):
        yield from (tensor for tensor in (vars(part).get("_former_parameters") or {}).values() if tensor is not None)


def _storage(tensor: Tensor) -> UntypedStorage | None:
    """The storage itself: an address is used again when its storage is gone."""
    try:
        return inner(tensor).untyped_storage()
    except (RuntimeError, NotImplementedError):  # tensors without memory of their own: fake, functional and sparse ones
        return None
