"""What an exception out of the examined model means: which line of whose code, in which module, and what would help.
The main thread."""

from __future__ import annotations

import inspect
import os
import re
from typing import NamedTuple

from torch import nn

from devexplorer.core.base import bytes_text, out_of_host_memory
from devexplorer.core.devices.accelerator import is_out_of_memory
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.isolation.source_location import SourceLocation, place_at, raised_at
from devexplorer.core.models import error_text, let_go, named_modules
from devexplorer.core.models.inputs import needs
from devexplorer.core.records import DeviceInfo

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TRIED = re.compile(
    r"you tried to allocate (?P<bytes>\d+) bytes|[Tt]ried to allocate (?P<size>[\d.]*\d) ?(?P<unit>[KMGT]?i?B)\b"
)
"""How CUDA, virtual GPUs and the CPU's allocator say how much was asked for."""
_NO_GRADIENTS = "does not require grad and does not have a grad_fn"
_IMITATION = (
    "virtual GPU",
    "VirtualTensor",
    "PrivateUse1",
    "privateuseone",
    "weak reference",
    "weakref",
    "compiled with CUDA",
    "support for cuda",
    "'CUDA' backend",
    "ATen_cuda",
    "attribute '_cuda",
    "Couldn't swap",
    "CUDA tensor",
    "active drivers",
    '_cpu" not implemented for',
    '_cpu_" not implemented for',
    "NestedTensorImpl",
    "data is not allocated yet",
    "have storage",
    "allocated storage",
    "Cannot access data pointer",
)
"""Words of errors that a virtual GPU raises and a real card would not, those of extensions in C++ and Triton among
them."""


class Failure(NamedTuple):
    """What an exception says, without the exception: its frames hold the activations."""

    description: str
    """`ValueError: first line`."""
    place: SourceLocation | None
    """The user's line."""
    path: str
    """The module whose code raised."""
    kind: str
    """`memory` (of the device), `host` (of this machine), `imitation` (of virtual GPUs only), `values` (`meta` has
    none), `other`."""
    wanted: int
    """Bytes that were asked for and not there; 0 where the error does not say."""
    error: type[BaseException] = RuntimeError
    no_forward: bool = False
    """Whether the model only holds modules."""

    @property
    def at(self) -> str:
        """` (net.py, line 7)`; empty where there is no line."""
        return "" if self.place is None else f" ({os.path.basename(self.place.file)}, line {self.place.line})"

    @property
    def fix(self) -> str:
        """What to do where the same works on the CPU."""
        if issubclass(self.error, StopIteration):
            return (
                "In a replica of nn.DataParallel the parameters are plain tensors, and parameters() is empty: take the"
                " device from an input (`x.device`)."
            )
        return (
            "Let this line work with the device that its operands are on (`x.device`), or do it on the CPU and move the"
            " result."
        )


def failure_of(error: BaseException, model: nn.Module | None, device: str) -> Failure:
    """Read an exception, and let go of its frames."""
    description = f"it called sys.exit({error})" if isinstance(error, SystemExit) else error_text(error)
    no_forward = isinstance(error, NotImplementedError) and 'missing the required "forward"' in str(error)
    if no_forward:
        kind = description.partition("[")[2].partition("]")[0] or type(model).__name__
        description = f"{kind} has no forward: it holds modules that other code runs"
    if _NO_GRADIENTS in description:
        description = f"{description} (with --train it runs with gradients)"
    tried = _TRIED.search(str(error))
    wanted = 0 if tried is None else int(tried["bytes"] or float(tried["size"]) * _UNITS.get(tried["unit"], 0))
    where, path, cause = raised_at(error), _module_that_raised(error, model), _kind(error, device)
    failure = Failure(description, where, path, cause, wanted, type(error), no_forward)
    let_go(error)
    return failure


def _module_that_raised(error: BaseException, model: nn.Module | None) -> str:
    """Path of the innermost module of the model among the frames of a traceback; empty: the model itself, or none."""
    paths = {} if model is None else {id(module): path for path, module in named_modules(model)}
    path = ""
    trace = error.__traceback__
    while trace is not None:  # outermost first, so that the last one is the innermost
        path = paths.get(id(trace.tb_frame.f_locals.get("self")), path)
        trace = trace.tb_next
    return path


def _kind(error: BaseException, device: str) -> str:
    text = str(error)
    if out_of_host_memory(error):
        return "memory" if device == "cpu" else "host"
    if is_out_of_memory(error):
        return "memory"
    if "meta tensor" in text or "device='meta'" in text:
        return "values"
    if device.startswith("vgpu") and any(word in text for word in _IMITATION):
        return "imitation"
    return "other"


def out_of_memory(failure: Failure, info: DeviceInfo, what: str) -> tuple[str, str]:
    """What to say about a device that is full: what happened, what would help."""
    total = "" if info.memory_total_bytes is None else f", {bytes_text(info.memory_total_bytes)}"
    asked = f": another {bytes_text(failure.wanted)} did not fit" if failure.wanted else ""
    message = f"{what} needs more memory than {info.id} ({info.name}{total}) has{asked}."
    if not info.simulated:
        return message, "Take a smaller batch (--input), a dtype of fewer bytes, or a card with more memory."
    larger = _next_larger((info.memory_total_bytes or 0) + max(failure.wanted, 1))
    card = f'a card with more memory (--virtual "{larger}"), ' if larger else ""
    return message, f"Take {card}a smaller batch (--input) or a dtype of fewer bytes."


def _next_larger(size: int) -> str | None:
    cards = sorted(
        (profile.memory_bytes, profile.name) for profile in load_profiles().values() if profile.memory_bytes >= size
    )
    return cards[0][1] if cards else None


def arguments_hint(model: nn.Module, given: int) -> str:
    """What to say after an error of a forward that got the wrong number of arguments; empty where the number is
    right."""
    wanted = needs(model)
    required = sum(need.required for need in wanted)
    if required <= given <= len(wanted) or not wanted:
        return ""
    names = ", ".join(need.name for need in wanted if need.required)
    example = ",".join(["2x16"] * required)
    return (
        f"; its forward takes {names}, and {given} {'was' if given == 1 else 'were'} given: give each one's shape, as"
        f" in --input {example}"
    )


def definition_of(function: object) -> SourceLocation | None:
    """Where a function or method is defined; None for what has no source."""
    try:
        raw = inspect.unwrap(function)  # type: ignore[arg-type]
        file = inspect.getsourcefile(raw)
        _, line = inspect.getsourcelines(raw)
    except (OSError, TypeError, ValueError):
        return None
    return place_at(file, line, getattr(raw, "__name__", "")) if file else None
