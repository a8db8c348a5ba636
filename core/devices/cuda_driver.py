"""The CUDA driver's own list of GPUs, in torch's order, without creating a context. Engine process, any one thread.

torch asks the CUDA runtime, whose device queries create a context (hundreds of MiB) on the way; the driver API answers
the same questions after `cuInit` alone. It reads CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER itself, once, at `cuInit`.
All of it is asked at once, on a thread with a time limit: where a call hangs, that is the reason why there is no list.
"""

from __future__ import annotations

import ctypes
import os
import sys
import uuid
from collections.abc import Mapping
from typing import Any

from devexplorer.core.base.time_limit import TimeLimitError, call_within
from devexplorer.core.records import DeviceInfo, Problem

LIMIT_S = 10.0
"""For everything that is asked; waking cards that sleep takes seconds."""

# Values of CUdevice_attribute in cuda.h
_ATTRIBUTE = {"sm_count": 16, "bus": 33, "slot": 34, "domain": 50, "major": 75, "minor": 76, "integrated": 18}

_MESSAGES = {
    34: "this is the stub of the CUDA library that the toolkit is linked with: install the NVIDIA driver",
    46: "a card is busy or not permitted to this user",
    100: "the CUDA driver finds no GPU",
    101: "CUDA_VISIBLE_DEVICES names a card that is not there",
    802: "the cards are not ready, most likely because NVIDIA's fabric manager for their NVSwitch is not running: start"
    " the service nvidia-fabricmanager",
    803: "the NVIDIA driver and its CUDA library differ in version: reboot or reload the driver",
    804: "this card does not support the installed CUDA compatibility package",
    999: "the NVIDIA driver does not answer: look into dmesg, reload the driver or reboot",
}
"""CUresult values that people meet, and what to do."""


class _StartError(Exception):
    """There is no list, for that reason."""


class CudaDriver:
    """libcuda through ctypes. `library` replaces it in tests; a missing one is a problem, never an exception."""

    def __init__(self, library: Any = None, environ: Mapping[str, str] | None = None, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._calling = "cuInit"
        self._asked = False
        self._listed: tuple[DeviceInfo, ...] = ()
        self._version: str | None = None
        self._library = library
        self._environ = os.environ if environ is None else environ
        self._handles: list[ctypes.c_int] = []
        self.problem: Problem | None = None
        """Why there is no list, after `devices` was asked for one."""

    def cuda_version(self) -> str | None:
        """The newest CUDA that this driver supports (`cuDriverGetVersion`): `12.4`."""
        self._ask()
        return self._version

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Every device that this process may use, by ordinal: the N of torch's `cuda:N`."""
        self._ask()
        return self._listed

    def _ask(self) -> None:
        """Everything, once."""
        if self._asked:
            return
        self._asked = True
        try:
            self._listed, self._version = call_within(self._limit_s, self._everything, "the CUDA driver")
        except TimeLimitError:
            self._handles = []
            self._fail(f"{self._calling} did not answer within {self._limit_s:g} s")

    def _everything(self) -> tuple[tuple[DeviceInfo, ...], str | None]:
        try:
            self._handles = self._open()
        except _StartError as error:
            self._fail(str(error))
            return (), None
        devices = tuple(self._device(ordinal, handle) for ordinal, handle in enumerate(self._handles))
        version = ctypes.c_int()
        if self._call("cuDriverGetVersion", ctypes.byref(version)) != 0:
            return devices, None
        return devices, f"{version.value // 1000}.{version.value % 1000 // 10}"

    def has_context(self, ordinal: int) -> bool | None:
        """Whether this process has a context on the device (`cuDevicePrimaryCtxGetState`, which creates none)."""
        self._ask()
        flags, active = ctypes.c_uint(), ctypes.c_int()
        if not 0 <= ordinal < len(self._handles):
            return None
        handle = self._handles[ordinal]
        if self._call("cuDevicePrimaryCtxGetState", handle, ctypes.byref(flags), ctypes.byref(active)) != 0:
            return None
        return bool(active.value)

    def _open(self) -> list[ctypes.c_int]:
        """Load, initialise and enumerate."""
        if self._library is None:
            name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
            try:
                self._library = ctypes.CDLL(name)
            except OSError:
                raise _StartError(f"no NVIDIA driver: {name} not found") from None
        self._demand("cuInit", ctypes.c_uint(0))
        count = ctypes.c_int()
        self._demand("cuDeviceGetCount", ctypes.byref(count))
        handles = [ctypes.c_int() for _ in range(count.value)]
        for ordinal, handle in enumerate(handles):
            self._demand("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(ordinal))
        if not handles:
            raise _StartError(self._message(100))
        return handles

    def _demand(self, name: str, *arguments: Any) -> None:
        """A call without which there is no list."""
        if (result := self._call(name, *arguments)) != 0:
            raise _StartError(self._message(result))

    def _device(self, ordinal: int, handle: ctypes.c_int) -> DeviceInfo:
        name = ctypes.create_string_buffer(256)
        named = self._call("cuDeviceGetName", name, ctypes.c_int(len(name)), handle) == 0
        total = ctypes.c_size_t()
        sized = self._call("cuDeviceTotalMem_v2", ctypes.byref(total), handle) == 0
        major, minor = self._attribute(handle, "major"), self._attribute(handle, "minor")
        domain, bus, slot = (self._attribute(handle, part) for part in ("domain", "bus", "slot"))
        return DeviceInfo(
            id=f"cuda:{ordinal}",
            kind="cuda",
            cuda_ordinal=ordinal,
            name=name.value.decode("utf-8", "replace") if named else f"CUDA device {ordinal}",
            uuid=self._uuid(handle),
            bus_id=None if domain is None or bus is None or slot is None else f"{domain:08X}:{bus:02X}:{slot:02X}.0",
            memory_total_bytes=total.value if sized else None,
            compute_capability=None if major is None or minor is None else f"{major}.{minor}",
            sm_count=self._attribute(handle, "sm_count"),
            memory_shared=bool(self._attribute(handle, "integrated")),
        )

    def _uuid(self, handle: ctypes.c_int) -> str | None:
        """`GPU-…`; also for a MIG instance, whose bytes are those of its `MIG-…`."""
        raw = (ctypes.c_ubyte * 16)()
        # The second version (CUDA 11.4) gives a MIG instance its own UUID, the first that of its card.
        for function in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
            if self._call(function, ctypes.byref(raw), handle) == 0:
                return f"GPU-{uuid.UUID(bytes=bytes(raw))}"
        return None

    def _attribute(self, handle: ctypes.c_int, name: str) -> int | None:
        value = ctypes.c_int()
        known = self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(_ATTRIBUTE[name]), handle) == 0
        return value.value if known else None

    def _call(self, name: str, *arguments: Any) -> int:
        """The CUresult of a call; 500 (CUDA_ERROR_NOT_FOUND) for a function that this driver lacks."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return 500
        self._calling = name
        return int(function(*arguments))

    def _message(self, result: int) -> str:
        if result == 500:
            return "the NVIDIA driver is too old: its CUDA library lacks a function"
        visible = self._environ.get("CUDA_VISIBLE_DEVICES")
        if result == 100 and visible is not None:
            return f"no GPU: CUDA_VISIBLE_DEVICES is '{visible}'"
        return _MESSAGES.get(result, f"the CUDA driver did not start (error {result})")

    def _fail(self, reason: str) -> None:
        self.problem = Problem(reason, field="cuda")
