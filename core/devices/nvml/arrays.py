"""The calls in which the driver writes a list, with room to spare behind it. Sampler threads; no torch, no Qt.

Some drivers write one entry more than they were given room for (nvitop allocates one more for that reason), which would
damage this process's memory. Here the driver is told of less room than there is. The functions are called as NVML's
are, take what pynvml's take, and raise what pynvml's raise; `nvml` is that module, or its replacement.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

SPARE = 8
"""Entries behind the end of each list."""
MORE = 5
"""Entries that may have been added between two calls: a process that has just started."""
MOST_ENTRIES = 100_000
"""A longer list is wrong."""
_U64 = ctypes.c_ulonglong
_UNKNOWN_BYTES = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE, as the memory of a process."""


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t and _v3: pynvml's own classes have other names in other releases."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", _U64),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


_ROOMS: dict[tuple[type, int], Any] = {}


def _room(kind: Any, count: int) -> Any:
    """An empty list for `count` entries. The types are kept: making one costs more than a call."""
    of = _ROOMS.get((kind, count))
    if of is None:
        of = _ROOMS[kind, count] = kind * (count + SPARE)
    return of()


def _with_room(name: str, plain: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call the decorated function with NVML's own function of this name, where there are function pointers.

    A replacement has none: its function, which may go by a `plain` name, is called as it is. Raises NVMLError when the
    driver lacks it.
    """

    def decorate(ours: Callable[..., Any]) -> Callable[..., Any]:
        def call(nvml: Any, *arguments: Any) -> Any:
            find = getattr(nvml, "_nvmlGetFunctionPointer", None)
            return getattr(nvml, plain or name)(*arguments) if find is None else ours(find(name), nvml, *arguments)

        return call

    return decorate


@_with_room("nvmlDeviceGetFieldValues")
def nvmlDeviceGetFieldValues(function: Any, nvml: Any, handle: Any, wanted: Sequence[tuple[int, int]]) -> Any:
    """One value for each (field, scope)."""
    values = _room(nvml.c_nvmlFieldValue_t, len(wanted))
    for value, (field, scope) in zip(values, wanted, strict=False):
        value.fieldId, value.scopeId = field, scope
    code = function(handle, ctypes.c_int(len(wanted)), ctypes.byref(values))
    if code:
        raise nvml.NVMLError(code)
    return values[: len(wanted)]


def running_processes(kind: str, version: int) -> Any:
    """The function that lists who uses a card: `kind` is `Compute` or `Graphics`."""
    name = f"nvmlDeviceGet{kind}RunningProcesses_v{version}"

    @_with_room(name, name.removesuffix("_v3"))  # pynvml's newest goes by the name without a version
    def nvmlDeviceGetRunningProcesses(function: Any, nvml: Any, handle: Any) -> list[Any]:
        result = _listed(nvml, _ProcessInfo, lambda count, room: function(handle, count, room))
        return [SimpleNamespace(pid=item.pid, usedGpuMemory=_known(item.usedGpuMemory)) for item in result]

    return nvmlDeviceGetRunningProcesses


def _known(memory: int) -> int | None:
    return None if memory == _UNKNOWN_BYTES else memory


@_with_room("nvmlDeviceGetProcessUtilization")
def nvmlDeviceGetProcessUtilization(function: Any, nvml: Any, handle: Any, since: int) -> Iterable[Any]:
    """Samples of each process after `since` (the driver's microseconds). Raises `NVMLError(0)` when there are none, as
    pynvml does."""
    kind = nvml.c_nvmlProcessUtilizationSample_t
    samples = _listed(nvml, kind, lambda count, room: function(handle, room, count, _U64(since)))
    if not samples:
        raise nvml.NVMLError(0)
    return samples


@_with_room("nvmlDeviceGetRetiredPages")
def nvmlDeviceGetRetiredPages(function: Any, nvml: Any, handle: Any, cause: int) -> Sequence[Any]:
    """Addresses of the pages taken out of use."""
    return _listed(nvml, _U64, lambda count, room: function(handle, ctypes.c_uint(cause), count, room))


def affinity(nvml: Any, name: str, handle: Any, count: int, *scope: int) -> Sequence[int]:
    """CPUs or NUMA nodes near a card, as bits of so many 64-bit words: `nvmlDeviceGetCpuAffinity`,
    `nvmlDeviceGetMemoryAffinity`."""

    @_with_room(name)
    def near(function: Any, nvml: Any, *_: Any) -> Sequence[int]:
        bits = _room(ctypes.c_ulong, count)
        code = function(handle, ctypes.c_uint(count), ctypes.byref(bits), *map(ctypes.c_uint, scope))
        if code:
            raise nvml.NVMLError(code)
        return list(bits[:count])

    result: Sequence[int] = near(nvml, handle, count, *scope)
    return result


def _listed(nvml: Any, kind: type, ask: Any) -> list[Any]:
    """A list whose length the driver decides: asked how long it is, then for it, with room for some that join
    meanwhile.

    A length that the driver gives afterwards and that is longer than the room it had is wrong: what is there counts.
    """
    count = ctypes.c_uint(0)
    code = ask(ctypes.byref(count), None)
    if code == 0 and count.value == 0:
        return []
    if code not in (0, nvml.NVML_ERROR_INSUFFICIENT_SIZE):
        raise nvml.NVMLError(code)
    if count.value > MOST_ENTRIES:
        raise ValueError(f"the driver answers {count.value} entries, which cannot be right")
    expected_count = 2 * count.value + MORE
    room = _room(kind, _steps(expected_count))
    count.value = expected_count
    code = ask(ctypes.byref(count), room)
    if code:
        raise nvml.NVMLError(code)
    return list(room[: min(count.value, expected_count)])


def _steps(count: int) -> int:
    """Rounded up, so that few types are made."""
    return -(-count // 32) * 32
