"""Sees every call of torch's that a model makes in forward and backward, and shows it to the rules; runs a model that
failed once more, to find out why. The thread that is watched.

A `TorchFunctionMode` is called in place of each function that Python calls; what such a function calls itself is not
shown again. While the rules look, neither modes nor subclasses are asked: what is on top of a user's own mode must not
use it.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from types import FrameType
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._pytree import tree_map_only

from devexplorer.core.base import first_line
from devexplorer.core.devices.accelerator import is_out_of_memory
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import Effect, FindingCollector
from devexplorer.core.doctor.findings.rules import DEVICES_MEET
from devexplorer.core.doctor.tracing.call import (
    BELOW,
    DATA,
    OPS,
    Call,
    Repair,
    Rule,
    WatchedRun,
    kind_of_function,
    note_results,
    tensors,
)
from devexplorer.core.doctor.tracing.copies_and_waits import device_hop, hidden_sync
from devexplorer.core.doctor.tracing.gradients import Gradients
from devexplorer.core.doctor.tracing.mixed_devices import (
    WIDE,
    dtype_promotion,
    float64_begins,
    mixed_devices,
    mixed_dtypes,
    note_doubles,
    note_strays,
)
from devexplorer.core.doctor.tracing.modules import Modules
from devexplorer.core.doctor.tracing.sources import Sources
from devexplorer.core.isolation.source_location import SourceLocation, frames, innermost, place_at
from devexplorer.core.models import device_id, is_irregular, named_modules, parameters_and_buffers
from devexplorer.core.records import Finding
from devexplorer.core.virtual.backend import is_virtual
from devexplorer.core.virtual.device.accounting import KIND, gpus

# What can be done about a call that failed for where its operands are, or for their dtypes, so that the forward goes
# on and the rest is examined too.

_MAKES = re.compile(r"sparse|nested")
"""In the names of functions whose result is such a tensor."""
LEFT = ("attribute", "hidden", "held", "variable", "earlier")
"""Kinds of origins of tensors that no move reaches."""
CPU = torch.device("cpu")


def _moved(values: Any, made: dict[int, Tensor]) -> Any:
    """The same with some tensors (by `id()`) exchanged."""
    return tree_map_only(Tensor, lambda tensor: made.get(id(tensor), tensor), values)


def host_list(call: Call) -> Repair | None:
    """A tensor made of a list of a device's numbers: each is read by the host, which virtual GPUs cannot imitate there.

    That the host waits for them is what `hidden_sync` says; on a card nothing is wrong with it.
    """
    if call.kind.name not in ("tensor", "as_tensor", "asarray") or not isinstance(call.first, list | tuple):
        return None
    if not any(map(is_virtual, call.operands)):
        return None
    args = _moved(call.args, {id(item): item.detach().cpu() for item in call.operands})
    return Repair(call.args, call.kwargs, lambda: None, lambda func: func(*args, **call.kwargs))


def host_array(call: Call) -> Repair | None:
    """A tensor of a device that is asked for its NumPy array: refused there, and done on the CPU."""
    tensor, run = call.first, call.run
    if call.kind.name not in ("numpy", "__array__") or not isinstance(tensor, Tensor):
        return None
    if tensor.device.type in ("cpu", "meta") or tensor.requires_grad:
        return None
    copy = tensor.cpu()

    def note() -> None:
        origin = run.sources.of(tensor)
        run.collector.add(
            "fails-on-device",
            f"A NumPy array is asked of {origin.description(run.path)}; it is on {tensor.device}, and NumPy reads the"
            " CPU's memory only.",
            "Compute it with torch, on the device; or copy it over first with .cpu().numpy(), which waits for the"
            " device at each call.",
            place=call.place,
            operands=origin.operands,
        )

    def repeated(func: Any) -> Any:
        return getattr(copy, call.kind.name)(*call.args[1:], **call.kwargs)

    return Repair((copy, *call.args[1:]), call.kwargs, note, repeated)


def on_host(call: Call) -> Repair | None:
    """A call that a virtual GPU cannot hold the operands or results of, and a card can: sparse and nested tensors.

    It is computed on the CPU, what is dense goes back to the card, and a note says that it was not checked there.
    Nothing is done about a call that writes into a tensor of the card.
    """
    run, kind = call.run, call.kind
    if run.device.type != KIND:
        return None
    irregular = list(filter(is_irregular, call.operands))
    kinds = dict.fromkeys("nested" if item.is_nested else "sparse" for item in irregular)
    made = _MAKES.search(kind.name)
    if not kinds and made is not None:
        kinds = {made[0]: None}
    writes = kind.writes and isinstance(call.first, Tensor) and call.first.device.type == KIND
    if not kinds or writes:
        return None
    run.irregular = True
    brought = {id(tensor): tensor.cpu() for tensor in call.operands if tensor.device.type == KIND}
    args, kwargs = list(_moved(call.args, brought)), _moved(call.kwargs, brought)
    if kwargs.get("device") is not None:
        kwargs["device"] = CPU
    for index, item in enumerate(args):
        if kind.copies and isinstance(item, str | torch.device):
            args[index] = CPU

    def repeated(func: Any) -> Any:
        if kind.name == "cuda":
            return args[0]
        result = func(*args, **kwargs)
        if kind.copies and is_irregular(result) and any(result is item for item in call.operands):
            return result.clone()  # on a card it is another tensor, of another device
        return tree_map_only(Tensor, lambda made: made if is_irregular(made) else made.to(run.device), result)

    def note() -> None:
        # A copy that stays here may be one of the card's, but a plain attribute is where it was made.
        left = []
        for item in irregular:
            origin = run.sources.of(item)
            if origin.kind in LEFT and not origin.derived:
                left.append(item)
        if left and brought:
            note_strays(call, left)
        why = f"{kind.sentence} was computed on the CPU: virtual GPUs hold dense tensors only."
        run.collector.not_checked(f"{' and '.join(kinds)} tensors", why, call.place)

    return Repair(tuple(args), kwargs, note, repeated, on_host=True)


def other_generator(call: Call) -> Repair | None:
    """A call that draws on one device with a random generator of another: refused, and done without it."""
    if _drawn_elsewhere(call, None) is None:
        return None
    return Repair(call.args, {**call.kwargs, "generator": None}, lambda: note_generator(call, None))


def note_generator(call: Call, result: Any) -> None:
    """Say that a random generator belongs to another device than what it draws. A virtual GPU's draws on the CPU too,
    as no card's does: `result` is None where the call failed."""
    where = _drawn_elsewhere(call, result)
    if where is None:
        return
    call.run.collector.add(
        "mixed-devices",
        f"{call.kind.sentence} draws on {device_id(where)} with a random generator of"
        f" {device_id(call.kwargs['generator'].device)}; a generator draws on its own kind of device only.",
        "Make the generator for that device, torch.Generator(device=x.device); or draw where the generator is, and move"
        " the result: .to(x.device).",
        place=call.place,
    )


def _drawn_elsewhere(call: Call, result: Any) -> torch.device | None:
    """Where a call draws; None where that is the kind of device of its generator, or there is none."""
    generator = call.kwargs.get("generator")
    if not isinstance(generator, torch.Generator):
        return None
    where = call.run.device
    if isinstance(result, Tensor):
        where = result.device
    elif isinstance(call.first, Tensor):
        where = call.first.device
    elif torch.device(call.kwargs.get("device") or where) == CPU:
        where = CPU
    return None if generator.device.type == where.type else where


REPAIRS: Sequence[Callable[[Call], Repair | None]] = (
    host_list,
    on_host,
    other_generator,
    mixed_devices,
    host_array,
    mixed_dtypes,
)
"""Each says whether it is about this call."""


def _repair_of(call: Call) -> Repair | None:
    for repair_of in REPAIRS:
        repair = repair_of(call)
        if repair is not None:
            return repair
    return None


WITHOUT_GRADIENT = "what gets no gradient"
T = TypeVar("T")
_Quiet: Any = torch._C.DisableTorchFunction
NO_CARD = "virtual GPUs hold dense tensors only"
_RULES: tuple[tuple[str, Rule], ...] = (
    ("hidden-sync", hidden_sync),
    ("device-hop", device_hop),
    ("dtype-promotion", dtype_promotion),
    ("float64", float64_begins),
    ("mixed-devices", note_generator),
    ("where tensors come from", note_results),
)


class OpTracer(TorchFunctionMode):
    """`with OpTracer(model, device, collector, origins, inputs): out = model(*inputs)`; findings go to the
    collector.

    `device` is where the model was moved; `origins` knows which line made what before (None: unknown). Operands
    that are on the wrong device are brought over once that is noted, so that the rest is examined too: a forward that
    works in here may fail outside.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device | str,
        collector: FindingCollector,
        origins: Origins | None,
        inputs: Sequence[Tensor],
        gradients: Gradients | None = None,
    ) -> None:
        """`gradients` follows histories through the forward, to report what backward does not
        reach."""
        super().__init__()
        self.model, self._gradients = model, gradients
        self.operations = 0
        """Calls that were watched."""
        self.run = run = WatchedRun(_numbered(torch.device(device), model), collector, Sources(model, origins, inputs))
        self._modules = Modules(run, self._returned)
        held = list(_held(model))
        run.wide = any(item.dtype in WIDE for item in (*held, *inputs))
        self._gpus = []
        if run.device.type == KIND:
            run.irregular = any(map(is_irregular, held))
            self._gpus = list(gpus())
        self._backwards = 0
        self._thread = threading.get_ident()
        self._broken: set[str] = set()
        self._run_backward: Any = vars(torch.autograd)["_engine_run_backward"]
        self._swap: Any = torch.utils.swap_tensors
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> OpTracer:
        self.run.until = _outside(sys._getframe(1))
        self.run.collector.path = ""
        with contextlib.ExitStack() as undo:  # carried out here only when something raises
            undo.callback(self._over)
            undo.enter_context(self._modules.attached())
            undo.enter_context(patch.object(torch.autograd, "_engine_run_backward", self._backward))
            undo.enter_context(patch.object(torch.utils, "swap_tensors", self._swapped))
            if self._gradients is not None:
                undo.enter_context(self._gradients.tracing(self.run.until))
            super().__enter__()  # type: ignore[no-untyped-call]
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)  # type: ignore[no-untyped-call]
        finally:
            self._undo.close()

    def _over(self) -> None:
        note_doubles(self.run)
        self.run.until = None
        self.run.collector.path = ""
        self.run.sources.forget()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        frame = sys._getframe(1)
        if frame.f_code.co_filename == OPS:
            frame = frame.f_back or frame
        if frame.f_code.co_filename.startswith(BELOW):
            result = func(*args, **kwargs)
            if frame.f_code.co_name == "data" and frame.f_back is not None:  # a virtual tensor's own property
                self._follow(Call(self.run, DATA, args, kwargs, frame.f_back), result)
            return result
        if self._gradients is not None and func is torch._C._set_grad_enabled and not self._backwards:
            self._gradients.switches.switch(bool(args[0]), frame)
        kind = kind_of_function(func)
        if kind is None or kind.asks:
            return func(*args, **kwargs)
        asked = Call(self.run, kind, args, kwargs, frame)
        if not (self._modules.running or self._backwards):
            result = func(*args, **kwargs)
            if asked.place is not None:  # in `train()` of a model
                self._guarded("where tensors come from", note_results, asked, result)
            return result
        self.operations += 1
        done = self._off_card(func, asked) if self.run.irregular else None
        reads = self._host_reads()
        try:
            result, call = done or (func(*args, **kwargs), asked)
        except (RuntimeError, TypeError) as error:
            done = self._repaired(func, asked, error)
            if done is None:
                raise
            result, call = done
        call.read = self._host_reads() > reads
        for name, rule in _RULES:
            self._guarded(name, rule, call, result)
        self.run.sources.use(asked.operands)
        self._follow(asked, result)
        return result

    def _host_reads(self) -> int:
        return sum(gpu.host_reads for gpu in self._gpus)

    def _follow(self, call: Call, result: Any) -> None:
        """Note what becomes of histories; those of a backward are none of forward's."""
        if self._gradients is not None and not self._backwards and self._modules.running:
            self._guarded(WITHOUT_GRADIENT, self._gradients.after, call, result)

    def _returned(self, output: Any) -> None:
        self._guarded("what is returned", self._note_left, output)
        if self._gradients is not None and not self._backwards:
            self._guarded(WITHOUT_GRADIENT, self._gradients.output, output)

    def _note_left(self, output: Any) -> None:
        """What the model returns on another device than its own."""
        given = tensors(dict(output) if isinstance(output, dict) else output)
        self.run.sources.use([tensor for tensor in given if tensor.device != self.run.device], Effect.RETURNED)

    def _off_card(self, func: Any, call: Call) -> tuple[Any, Call] | None:
        """The same for a call that works on the CPU's sparse tensors as they are: on a card its dense results would be
        there."""
        with _Quiet():
            irregular = any(map(is_irregular, call.operands))
        return self._repaired(func, call, RuntimeError(NO_CARD)) if irregular else None

    def _repaired(self, func: Any, call: Call, error: Exception) -> tuple[Any, Call] | None:
        """What a call that failed for where its operands are gives elsewhere, and the call there; None: it failed for
        something else.

        It raises nothing: the error's traceback would hold this frame, which holds the error, and activations with it.
        """
        if is_out_of_memory(error):
            return None
        repair = self._guarded("mixed-devices", _repair_of, call)
        if repair is None:
            return None
        done = None
        with contextlib.suppress(Exception):  # it was not only the devices
            done = repair.repeated(func), Call(call.run, call.kind, repair.args, repair.kwargs, call.frame)
        if done is not None or ("device" in str(error) and not repair.on_host):
            self._guarded("mixed-devices", repair.note)
        return done

    def _guarded(self, name: str, look: Callable[..., T], *given: Any) -> T | None:
        """Tensors of unknown classes may raise anything: then the rule ends, not the model."""
        if name in self._broken:
            return None
        try:
            with _Quiet():
                return look(*given)
        except Exception as error:
            self._broken.add(name)
            at = f" in '{self.run.collector.path}'" if self.run.collector.path else ""
            self.run.collector.not_checked(
                name, f"Watching for it ended at a call{at} whose tensors could not be looked at ({first_line(error)})."
            )
            return None

    def _swapped(self, first: Tensor, second: Tensor) -> None:
        """A module moves in forward, or gets its shapes: tensors with weak references would be refused."""
        self.run.sources.drop(first, second)
        if self._gradients is not None:
            self._gradients.drop(first, second)
        self._swap(first, second)

    def _backward(self, *args: Any, **kwargs: Any) -> Any:
        """autograd's engine starts; `Tensor.backward`, which is a torch function itself, was called without this
        mode."""
        if self._gradients is not None and not self._backwards and not self._modules.running:
            self._guarded(WITHOUT_GRADIENT, self._gradients.backward, args[0])
        self._backwards += 1
        self.run.sources.backward = True
        try:
            with contextlib.ExitStack() as undo:
                if threading.get_ident() == self._thread and self not in _get_current_function_mode_stack():
                    undo.enter_context(_pushed(self))
                return self._run_backward(*args, **kwargs)
        finally:
            self._backwards -= 1
            self.run.sources.backward = self._backwards > 0


@contextlib.contextmanager
def _pushed(mode: TorchFunctionMode) -> Iterator[None]:
    """A mode once more, without what its own `with` begins and ends."""
    _push_mode(mode)
    try:
        yield
    finally:
        _pop_mode()


def _held(model: nn.Module) -> Iterator[Tensor]:
    """Its parameters and buffers; unlike torch's own walk, this one asks no module for a hash."""
    for _, module in named_modules(model):
        yield from (item for item in (*module._parameters.values(), *module._buffers.values()) if item is not None)


def _numbered(device: torch.device, model: nn.Module) -> torch.device:
    """Tensors say `cuda:0` and `mps:0` where their user may say `cuda` and `mps`."""
    tensors: tuple[Tensor, ...] = parameters_and_buffers(model) if device.index is None else ()
    return next((tensor.device for tensor in tensors if tensor.device.type == device.type), device)


def _outside(frame: FrameType | None) -> FrameType | None:
    """The frame of the `with` statement; `contextlib` may be in between."""
    return next((outer for outer in frames(frame) if outer.f_code.co_filename != contextlib.__file__), None)


_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')
_SAID = "Traceback of forward call that caused the error"


def forward_line(work: Callable[[], object]) -> SourceLocation | None:
    """The line whose operation raises in backward; `work` does forward and backward, as it did when it failed. None
    where it is unknown."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with torch.autograd.detect_anomaly(check_nan=False):
                work()
        except (Exception, SystemExit) as error:
            traceback.clear_frames(error.__traceback__)  # they hold activations
    text = next((str(item.message) for item in said if _SAID in str(item.message)), "")
    return innermost(place_at(file, int(line), function) for file, line, function in reversed(_FRAME.findall(text)))


class _Found(BaseException):
    """Ends the forward; no `except Exception` of the model's is to go on after it."""


class _FirstOnly(FindingCollector):
    """Ends the forward with the first finding that says why it fails."""

    def add(self, rule: str, message: str, fix: str, **fields: object) -> None:
        """See `FindingCollector.add`."""
        super().add(rule, message, fix, **fields)  # type: ignore[arg-type]
        if rule in DEVICES_MEET:
            raise _Found


def cause(model: nn.Module, inputs: Sequence[Tensor]) -> Finding | None:
    """What the doctor says about the first operation that fails for where its operands are; None where it finds none.

    The random generator of the CPU is left as it was; what else forward changes is changed once more.
    """
    homes = Counter(tensor.device for tensor in chain(model.parameters(), model.buffers()))
    homes = homes or Counter(tensor.device for tensor in inputs if tensor.device.type != "cpu")
    if not homes:
        return None
    collector = _FirstOnly()
    with torch.random.fork_rng(devices=[]):
        try:
            with OpTracer(model, homes.most_common(1)[0][0], collector, None, inputs):
                model(*inputs)
        except (_Found, Exception, SystemExit) as ended:
            traceback.clear_frames(ended.__traceback__)  # they hold activations
    return next((finding for finding in collector.findings() if finding.rule in DEVICES_MEET), None)
