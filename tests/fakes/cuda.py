"""Fakes of libcuda and of a CUDA build of torch, with given values and no GPU."""

from __future__ import annotations

import uuid
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

GIB = 1 << 30
AcceleratorError: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)
"""What CUDA's errors are; before torch 2.8 they had no class of their own."""


@dataclass
class FakeGpu:
    """One device as the CUDA driver lists it."""

    uuid: str = "00000000-0000-0000-0000-000000000000"
    name: bytes = b"Tesla T4"
    total: int = 15 * GIB
    capability: tuple[int, int] = (7, 5)
    sm_count: int = 40
    bus: tuple[int, int, int] = (0, 0x3B, 0)


class FakeLibcuda:
    """The driver API. `results` lets a function return an error code, `missing` takes functions away.

    It cannot create a context: a call that would (cuCtxCreate, cuDevicePrimaryCtxRetain) is an AttributeError. `calls`
    lists the called functions."""

    def __init__(self, *gpus: FakeGpu, results: dict[str, int] | None = None, missing: tuple[str, ...] = ()) -> None:
        self.gpus = gpus
        self.results = results or {}
        self.missing = missing
        self.active: set[int] = set()
        self.version = 12040
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self.missing or not hasattr(type(self), f"do_{name}"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if self.results.get(name):
                return self.results[name]
            getattr(self, f"do_{name}")(*arguments)
            return 0

        return call

    def do_cuInit(self, flags: Any) -> None:
        assert flags.value == 0

    def do_cuDriverGetVersion(self, out: Any) -> None:
        out._obj.value = self.version

    def do_cuDeviceGetCount(self, out: Any) -> None:
        out._obj.value = len(self.gpus)

    def do_cuDeviceGet(self, out: Any, ordinal: Any) -> None:
        out._obj.value = ordinal.value

    def do_cuDeviceGetName(self, out: Any, length: Any, device: Any) -> None:
        out.value = self.gpus[device.value].name[: length.value - 1]

    def do_cuDeviceTotalMem_v2(self, out: Any, device: Any) -> None:
        out._obj.value = self.gpus[device.value].total

    def do_cuDeviceGetUuid_v2(self, out: Any, device: Any) -> None:
        out._obj[:] = list(uuid.UUID(self.gpus[device.value].uuid).bytes)

    def do_cuDeviceGetUuid(self, out: Any, device: Any) -> None:
        self.do_cuDeviceGetUuid_v2(out, device)

    def do_cuDeviceGetAttribute(self, out: Any, attribute: Any, device: Any) -> None:
        gpu = self.gpus[device.value]
        values = {
            16: gpu.sm_count, 18: 0, 50: gpu.bus[0], 33: gpu.bus[1], 34: gpu.bus[2],
            75: gpu.capability[0], 76: gpu.capability[1],
        }  # fmt: skip
        out._obj.value = values[attribute.value]

    def do_cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, active: Any) -> None:
        active._obj.value = int(device.value in self.active)


class FakeCudaTorch:
    """A CUDA build of torch with `count` unused devices; `generic` lists the functions of `torch.accelerator`.

    Calls that would create a context are recorded in `contexts`; listing devices must leave it empty."""

    def __init__(
        self,
        count: int = 0,
        *,
        built: bool = True,
        architectures: tuple[str, ...] = ("sm_75", "sm_86", "sm_90"),
        cuda: str | None = "12.6",
        warning: str | None = None,
        accelerator: str | None = None,
        modules: dict[str, Any] | None = None,
        private: str = "privateuseone",
        generic: dict[str, Any] | None = None,
    ) -> None:
        self.__version__ = "2.13.0+cu126" if built else "2.13.0+cpu"
        self.contexts: list[int] = []
        self.threads = 4
        self.modules = modules or {}
        self.version = SimpleNamespace(cuda=cuda, hip=None)
        self.backends = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: built))
        self.cuda = _FakeCuda(self, count, architectures, warning)
        current = None if accelerator is None else SimpleNamespace(type=accelerator)
        self.accelerator = SimpleNamespace(current_accelerator=lambda: current, **(generic or {}))
        self._C = SimpleNamespace(_get_privateuse1_backend_name=lambda: private)

    def get_device_module(self, kind: str) -> Any:
        if kind not in self.modules:
            raise RuntimeError(f"Expected one of cpu, cuda, … device type at start of device string: {kind}")
        return self.modules[kind]

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, threads: int) -> None:
        self.threads = threads

    def get_default_dtype(self) -> str:
        return "torch.float32"


class _FakeCuda:
    def __init__(self, torch: FakeCudaTorch, count: int, architectures: tuple[str, ...], warning: str | None) -> None:
        self._torch = torch
        self._count = count
        self._architectures = architectures
        self._warning = warning
        self.full: set[int] = set()
        """Devices without room for a context."""
        self.synchronized: list[int] = []
        self.stats: dict[str, int] = {}
        self.segments: list[dict[str, Any]] = []
        """The allocator's snapshot, in torch's format."""
        self.looks = 0
        self.recorded: list[Any] = []
        """Arguments of each call that started or ended recording."""
        self.memory = SimpleNamespace(
            _record_memory_history=lambda *given, **named: self.recorded.append((*given, named)),
            _snapshot=self._snapshot,
        )

    def is_available(self) -> bool:
        if self._warning is not None:
            warnings.warn(self._warning, UserWarning, stacklevel=1)
        return self._count > 0

    def device_count(self) -> int:
        return self._count

    def get_arch_list(self) -> list[str]:
        return list(self._architectures)

    def is_initialized(self) -> bool:
        return bool(self._torch.contexts)

    def mem_get_info(self, index: int) -> tuple[int, int]:
        if index in self.full:
            raise AcceleratorError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the manual")
        self._torch.contexts.append(index)
        return 10 * GIB, 15 * GIB

    def memory_reserved(self, index: int) -> int:
        return self.stats.get("reserved_bytes.all.current", 0)

    def memory_allocated(self, index: int) -> int:
        return self.stats.get("allocated_bytes.all.current", 0)

    def memory_stats(self, index: int) -> dict[str, int]:
        return self.stats

    def synchronize(self, index: int) -> None:
        self.synchronized.append(index)

    def empty_cache(self) -> None:
        self.stats["reserved_bytes.all.current"] = self.stats.get("allocated_bytes.all.current", 0)

    def memory_snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        assert not include_traces, "what was recorded is not needed, and costs much"
        self.looks += 1
        return self.segments

    def _snapshot(self) -> dict[str, Any]:
        traces = [[{"action": "alloc", "addr": 1, "size": 2, "stream": 0}] for _ in range(self._count)]
        return {
            "segments": self.segments,
            "device_traces": traces,
            "allocator_settings": {},
            "external_annotations": [],
        }
