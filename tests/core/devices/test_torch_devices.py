"""Devices in torch: the real CPU; fake CUDA and other accelerators, without a context while listing."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes.cuda import GIB, FakeCudaTorch, FakeGpu, FakeLibcuda
from fakes.nvml import MIB, FakeCard, FakeNvml

from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.base import BadInput, DoesNotFit, Unavailable
from devexplorer.core.base.time_limit import any_abandoned
from devexplorer.core.benchmark.kind import kind_of
from devexplorer.core.commands.refusals import refusal
from devexplorer.core.devices import torch_devices
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.cpu import CpuFacts, CpuReader
from devexplorer.core.devices.cuda_driver import CudaDriver
from devexplorer.core.devices.nvml.library import Nvml, free_bytes
from devexplorer.core.devices.torch_devices import TorchBackend, arch_reason, torch_facts
from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.planner.calibrate.kind import CalibrateSpec
from devexplorer.core.records import BenchSpec, DeviceInfo, MatmulSpec
from devexplorer.core.scaling.kind import ScalingSpec
from devexplorer.core.sweep.kind import SweepSpec

T4 = FakeGpu("aaaaaaaa-0000-0000-0000-000000000001")
A10 = FakeGpu("bbbbbbbb-0000-0000-0000-000000000002", b"NVIDIA A10", 22 * GIB, (8, 6), 72, (0, 0x5E, 0))


def backend(
    fake: FakeCudaTorch, library: FakeLibcuda | None = None, environ: dict[str, str] | None = None
) -> TorchBackend:
    driver = CudaDriver(library if library is not None else FakeLibcuda(), environ or {})
    cpu = CpuReader(CpuFacts("AMD EPYC", 4, 64 * GIB, None))
    return TorchBackend(module=fake, driver=driver, cpu=cpu, environ=environ or {})


# the driver


def _listed(
    ordinal: int, name: str, uuid: object, bus_id: str | None, memory: int, capability: str | None, sm_count: int | None
) -> DeviceInfo:
    return DeviceInfo(
        id=f"cuda:{ordinal}",
        kind="cuda",
        name=name,
        uuid=f"GPU-{uuid}",
        bus_id=bus_id,
        cuda_ordinal=ordinal,
        memory_total_bytes=memory,
        memory_shared=False,
        compute_capability=capability,
        sm_count=sm_count,
    )


def test_the_driver_lists_its_devices_without_a_context() -> None:
    library = FakeLibcuda(T4, A10)
    driver = CudaDriver(library)
    assert driver.devices() == (
        _listed(0, "Tesla T4", T4.uuid, "00000000:3B:00.0", 15 * GIB, "7.5", 40),
        _listed(1, "NVIDIA A10", A10.uuid, "00000000:5E:00.0", 22 * GIB, "8.6", 72),
    )
    assert (driver.cuda_version(), driver.problem) == ("12.4", None)
    assert not [call for call in library.calls if "Ctx" in call]
    driver.devices()
    assert library.calls.count("cuInit") == 1


def test_the_driver_knows_who_has_a_context() -> None:
    library = FakeLibcuda(T4, A10)
    library.active.add(1)
    driver = CudaDriver(library)
    assert [driver.has_context(ordinal) for ordinal in (0, 1, 2, -1)] == [False, True, None, None]


def test_an_old_driver_without_the_second_uuid_function() -> None:
    (device,) = CudaDriver(FakeLibcuda(T4, missing=("cuDeviceGetUuid_v2",))).devices()
    assert device.uuid == f"GPU-{T4.uuid}"
    (device,) = CudaDriver(FakeLibcuda(T4, missing=("cuDeviceGetUuid_v2", "cuDeviceGetUuid"))).devices()
    assert device.uuid is None


def test_a_field_that_fails_hides_no_other() -> None:
    results = {"cuDeviceGetAttribute": 1, "cuDeviceGetName": 1}
    (device,) = CudaDriver(FakeLibcuda(T4, results=results)).devices()
    assert device == _listed(0, "CUDA device 0", T4.uuid, None, 15 * GIB, None, None)


def test_a_name_that_is_no_utf8() -> None:
    (device,) = CudaDriver(FakeLibcuda(FakeGpu(name=b"T4 \xff"))).devices()
    assert device.name == "T4 �"


@pytest.mark.parametrize(
    ("library", "environ", "words"),
    [
        (FakeLibcuda(results={"cuInit": 100}), {}, "finds no GPU"),
        (FakeLibcuda(results={"cuInit": 100}), {"CUDA_VISIBLE_DEVICES": ""}, "no GPU: CUDA_VISIBLE_DEVICES is ''"),
        (FakeLibcuda(), {}, "finds no GPU"),
        (FakeLibcuda(results={"cuInit": 802}), {}, "fabric manager for their NVSwitch is not running"),
        (FakeLibcuda(results={"cuInit": 803}), {}, "reboot or reload the driver"),
        (FakeLibcuda(results={"cuInit": 34}), {}, "stub"),
        (FakeLibcuda(results={"cuInit": 777}), {}, "error 777"),
        (FakeLibcuda(T4, results={"cuDeviceGetCount": 3}), {}, "error 3"),
        (FakeLibcuda(T4, results={"cuDeviceGet": 999}), {}, "does not answer"),
        (FakeLibcuda(missing=("cuInit",)), {}, "too old"),
    ],
)
def test_a_driver_that_does_not_start_says_why(library: FakeLibcuda, environ: dict[str, str], words: str) -> None:
    driver = CudaDriver(library, environ)
    assert driver.devices() == ()
    assert driver.cuda_version() is None
    assert driver.problem is not None
    assert words in driver.problem.reason
    assert driver.problem.field == "cuda"


# whether this build runs on that card


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ("8.6", ["sm_75", "sm_86"], True),
        ("8.9", ["sm_75", "sm_86"], True),  # a newer minor
        ("8.0", ["sm_86"], False),  # an older minor
        ("12.0", ["sm_75", "sm_90"], False),
        ("12.0", ["sm_90", "compute_90"], True),  # PTX
        ("7.0", ["compute_75"], False),
        ("9.0", ["sm_90a"], True),
        ("12.0", ["compute_90a"], False),  # PTX for one capability only
        ("10.3", ["sm_100f"], True),
        ("12.0", ["sm_100f"], False),
        ("7.5", [], False),
        ("7.5", ["gfx942"], False),
    ],
)
def test_which_card_a_build_has_code_for(capability: str, architectures: list[str], runs: bool) -> None:
    reason = arch_reason(capability, architectures)
    assert (reason is None) == runs
    if reason is not None:
        assert f"sm_{capability.replace('.', '')}" in reason


# listing


def test_cuda_devices_are_listed_in_torch_s_order_and_no_context_is_created() -> None:
    fake, library = FakeCudaTorch(2), FakeLibcuda(T4, A10)
    found = backend(fake, library)
    cpu, first, second = found.devices()
    assert (cpu.id, cpu.threads) == ("cpu", 4)
    assert (first.id, first.uuid, first.usable, first.compute_capability) == ("cuda:0", f"GPU-{T4.uuid}", True, "7.5")
    assert (second.id, second.cuda_ordinal, second.sm_count, second.cuda_version) == ("cuda:1", 1, 72, "12.4")
    assert found.problems() == ()
    assert fake.contexts == []
    found.synchronize("cuda:1")
    assert found.allocator_sample("cuda:1", 0.0) is None
    found.empty_cache("cuda:0")
    assert (fake.contexts, fake.cuda.synchronized) == ([], []), "what was never touched has nothing to wait for"


def test_a_card_too_new_for_this_build_is_unusable_with_the_reason() -> None:
    blackwell = FakeGpu(name=b"RTX 5090", capability=(12, 0))
    _, first, second = backend(FakeCudaTorch(2), FakeLibcuda(blackwell, T4)).devices()
    assert not first.usable
    assert first.reason == "needs sm_120, this build of torch has sm_75, sm_86, sm_90"
    assert second.usable


@pytest.mark.parametrize(
    ("fake", "version", "words"),
    [
        (FakeCudaTorch(0, cuda="13.0"), 12040, "the driver supports CUDA 12.4, this torch was built with 13.0"),
        (FakeCudaTorch(0, warning="CUDA initialization: too old (found 11040)\nmore"), 12040, "too old (found 11040)"),
        (FakeCudaTorch(0), 12040, "torch counts 0 CUDA devices"),
    ],
)
def test_a_card_that_torch_cannot_start_says_why(fake: FakeCudaTorch, version: int, words: str) -> None:
    library = FakeLibcuda(T4)
    library.version = version
    _, device = backend(fake, library).devices()
    assert not device.usable
    assert device.reason is not None
    assert words in device.reason
    assert "\n" not in device.reason


def test_a_cpu_build_says_so_and_asks_no_driver() -> None:
    library = FakeLibcuda(T4)
    found = backend(FakeCudaTorch(built=False), library)
    assert [info.id for info in found.devices()] == ["cpu"]
    (problem,) = found.problems()
    assert problem.field == "cuda"
    assert "CPU build" in problem.reason
    assert library.calls == []


def test_no_visible_device_is_a_problem_not_a_device() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "-1"}
    found = backend(FakeCudaTorch(0), FakeLibcuda(results={"cuInit": 100}), environ)
    assert [info.id for info in found.devices()] == ["cpu"]
    assert "CUDA_VISIBLE_DEVICES is '-1'" in found.problems()[0].reason


def accelerator(count: int, **functions: Any) -> Any:
    return SimpleNamespace(is_available=lambda: count > 0, device_count=lambda: count, **functions)


def test_another_accelerator_is_listed_even_when_it_lacks_everything() -> None:
    def refuse(index: int) -> Any:
        raise NotImplementedError("not on this backend")

    fake = FakeCudaTorch(
        built=False, accelerator="openreg", modules={"openreg": accelerator(2, get_memory_info=refuse)}
    )
    found = backend(fake)
    ids = [info.id for info in found.devices()]
    assert ids == ["cpu", "openreg:0", "openreg:1"]
    assert found.devices()[1].name == "openreg device 0"
    assert found.devices()[1].memory_total_bytes is None
    assert found.free_bytes("openreg:1") is None
    assert found.allocator_sample("openreg:1", 0.0) is None
    sample = found.device_sample("openreg:1", 3.0)
    assert sample is not None
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (None, None)


def not_implemented(index: int) -> Any:
    raise NotImplementedError("getMemoryInfo is not implemented for this allocator yet")


def minimal(**generic: Any) -> FakeCudaTorch:
    """A backend shaped as PyTorch's reference one: its module counts its devices, all else is in the generic
    interface."""
    return FakeCudaTorch(
        built=False, accelerator="openreg", private="openreg", modules={"openreg": accelerator(2)}, generic=generic
    )


def test_a_minimal_backend_works_through_the_generic_interface() -> None:
    waited, emptied = [], []
    stats = {"allocated_bytes.all.current": 12, "reserved_bytes.all.current": 16, "allocated_bytes.all.peak": 77}
    found = backend(
        minimal(
            synchronize=waited.append,
            get_memory_info=not_implemented,
            memory_stats=lambda index: stats if index == 1 else {},
            memory_allocated=lambda index: 5,
            memory_reserved=lambda index: 9,
            empty_cache=lambda: emptied.append(True),
        )
    )
    found.synchronize("openreg:1")
    found.empty_cache("openreg:1")
    assert (waited, emptied) == ([1], [True])
    counted = [found.allocator_sample(device, 0.0) for device in ("openreg:1", "openreg:0")]
    assert [(one.allocated_bytes, one.reserved_bytes, one.peak_allocated_bytes) for one in counted if one] == [
        (12, 16, 77),
        (5, 9, None),
    ]


def test_what_a_minimal_backend_does_not_say_is_listed_with_its_reason() -> None:
    reasons = {
        (one.device, one.field): one.reason for one in backend(minimal(get_memory_info=not_implemented)).problems()
    }
    assert reasons["openreg:1", "name"] == "torch.openreg has no get_device_name"
    assert reasons["openreg:0", "memory_total_bytes"].startswith(
        "getMemoryInfo is not implemented for this allocator yet"
    )


def test_a_backend_that_cannot_be_waited_for_says_which_functions_it_lacks() -> None:
    with pytest.raises(Unavailable, match=r"torch\.openreg has no synchronize"):
        backend(minimal()).synchronize("openreg:0")


def test_a_fault_of_the_device_is_no_missing_function() -> None:
    def broken(index: int) -> None:
        raise RuntimeError("device lost")

    fake = minimal(synchronize=broken)
    fake.modules["openreg"].synchronize = lambda index: None
    with pytest.raises(RuntimeError, match="device lost"):
        backend(fake).synchronize("openreg:0")


def test_the_module_answers_what_the_generic_interface_does_not() -> None:
    """By the name that `torch.cuda` has for it; and a kind that is not the current accelerator has its module alone."""
    fake = minimal(get_memory_info=not_implemented, synchronize=not_implemented)
    waited: list[int] = []
    fake.modules["openreg"].mem_get_info = lambda index: (2 * GIB, 8 * GIB)
    fake.modules["xpu"] = accelerator(1, synchronize=waited.append)
    found = backend(fake)
    assert found.used_bytes("openreg:0") == 6 * GIB
    found.synchronize("xpu:0")
    assert waited == [0]


def test_another_accelerator_s_figures_are_used_where_there_are_some() -> None:
    waited: list[int] = []
    module = accelerator(
        1,
        get_device_name=lambda index: f"Arc {index}",
        get_memory_info=lambda index: (6 * GIB, 8 * GIB),
        memory_stats=lambda index: {"allocated_bytes.all.current": 10, "reserved_bytes.all.current": 30},
        synchronize=waited.append,
    )
    found = backend(FakeCudaTorch(built=False, modules={"xpu": module}))
    device = found.devices()[1]
    assert (device.id, device.kind, device.name, device.memory_total_bytes) == ("xpu:0", "xpu", "Arc 0", 8 * GIB)
    assert found.free_bytes("xpu:0") == 6 * GIB + 20
    sample = found.allocator_sample("xpu:0", 1.0)
    assert sample is not None
    assert (sample.allocated_bytes, sample.reserved_bytes, sample.peak_allocated_bytes) == (10, 30, None)
    found.synchronize("xpu:0")
    assert waited == [0], "the device is named"
    with pytest.raises(BadInput):
        found.synchronize("xpu:1")


def test_our_own_virtual_backend_is_served_elsewhere() -> None:
    modules = {"vgpu": accelerator(2), "privateuseone": accelerator(1)}
    fake = FakeCudaTorch(built=False, accelerator="vgpu", private="vgpu", modules=modules)
    assert [info.id for info in backend(fake).devices()] == ["cpu"]


def test_a_backend_that_cannot_be_listed_is_a_problem() -> None:
    def broken() -> int:
        raise RuntimeError("no firmware\nsee the log")

    fake = FakeCudaTorch(built=False, private="npu", modules={"npu": SimpleNamespace(is_available=broken)})
    problems = backend(fake).problems()
    assert [problem.reason for problem in problems if problem.field == "npu"] == [
        "the backend 'npu' cannot be listed: no firmware"
    ]


def test_the_gpu_of_an_apple_machine_shares_the_system_s_memory() -> None:
    fake = FakeCudaTorch(built=False, modules={"mps": accelerator(1, empty_cache=lambda: None)})
    fake.mps = SimpleNamespace(  # type: ignore[attr-defined]
        synchronize=lambda: None, current_allocated_memory=lambda: 5, driver_allocated_memory=lambda: 9
    )
    found = backend(fake)
    device = found.devices()[1]
    assert (device.id, device.memory_shared, device.memory_total_bytes) == ("mps", True, 64 * GIB)
    sample = found.allocator_sample("mps", 0.0)
    assert sample is not None
    assert (sample.allocated_bytes, sample.reserved_bytes) == (5, 9)
    found.synchronize("mps")
    found.empty_cache("mps")


# at work


def test_free_memory_of_a_gpu_counts_what_its_allocator_has_cached() -> None:
    fake = FakeCudaTorch(1)
    fake.cuda.stats = {"allocated_bytes.all.current": 3 * GIB, "reserved_bytes.all.current": 5 * GIB}
    found = backend(fake, FakeLibcuda(T4))
    assert found.free_bytes("cuda:0") == 12 * GIB
    assert fake.contexts == [0]


@pytest.mark.parametrize(
    ("cards", "room"),
    [
        (
            (FakeCard(), FakeCard(uuid=f"GPU-{A10.uuid}", total=22 * GIB, used=22 * GIB - 290 * MIB, reserved=0)),
            ", 290.00 MiB free",
        ),
        ((FakeCard(),), ""),  # NVML does not list it
    ],
)
@pytest.mark.parametrize(
    "spec",
    [
        MatmulSpec(device="cuda:1", m=64, n=64, k=64),
        SweepSpec(device="cuda:1", shapes=((64, 64, 64),)),
        BandwidthSpec(sources=("cpu",), destinations=("cuda:1",)),
        ScalingSpec(devices=("cpu", "cuda:1")),
        ModelSpec(device="cuda:1", target="lenet"),
        CalibrateSpec(device="cuda:1"),
    ],
)
def test_a_gpu_without_room_for_a_context_is_refused_with_what_is_free(
    cards: tuple[FakeCard, ...], room: str, spec: BenchSpec
) -> None:
    fake = FakeCudaTorch(2)
    fake.cuda.full = {1}
    nvml = FakeNvml(*cards)
    driver = CudaDriver(FakeLibcuda(T4, A10), {})
    found = TorchBackend(module=fake, driver=driver, environ={}, free_of=partial(free_bytes, make=lambda: Nvml(nvml)))
    found.free_bytes("cuda:0")
    with pytest.raises(DoesNotFit, match=f"no room for a CUDA context on cuda:1{room};") as caught:
        kind_of(spec).check(spec, DeviceRegistry([found]))
    assert nvml.initialised == 0, "NVML is closed again"
    assert refusal(caught.value).facts == (), "how much a context needs is not known"


def test_a_gpu_with_a_context_has_allocator_numbers_and_is_waited_for_by_name() -> None:
    fake, library = FakeCudaTorch(2), FakeLibcuda(T4, A10)
    fake.cuda.stats = {
        "allocated_bytes.all.current": 3, "reserved_bytes.all.current": 5, "allocated_bytes.all.peak": 4,
    }  # fmt: skip
    found = backend(fake, library)
    found.free_bytes("cuda:1")
    library.active.add(1)
    sample = found.allocator_sample("cuda:1", 2.0)
    assert sample is not None
    assert (sample.allocated_bytes, sample.reserved_bytes, sample.peak_allocated_bytes) == (3, 5, 4)
    assert found.allocator_sample("cuda:0", 2.0) is None, "no context there"
    found.synchronize("cuda:1")
    assert fake.cuda.synchronized == [1]
    found.empty_cache("cuda:1")
    assert found.allocator_sample("cuda:1", 2.0) is not None
    assert fake.cuda.stats["reserved_bytes.all.current"] == 3


def test_a_gpu_s_footprint_is_in_blocks_and_the_cpu_s_exact() -> None:
    found = backend(FakeCudaTorch(1), FakeLibcuda(T4))
    assert found.footprint_bytes("cuda:0", [1, 512, 513, 0]) == 512 + 512 + 1024
    assert found.footprint_bytes("cpu", [1, 512, 513, 0]) == 1026


@pytest.mark.parametrize("device", ["cuda:1", "cuda:7", "cpu:1", "vgpu:0", "nonsense!"])
def test_an_id_that_is_not_listed_is_refused_everywhere(device: str) -> None:
    found = backend(FakeCudaTorch(1), FakeLibcuda(T4))
    for ask in (found.free_bytes, found.synchronize, found.clock_seconds, found.empty_cache):
        with pytest.raises(BadInput):
            ask(device)
    with pytest.raises(BadInput):
        found.footprint_bytes(device, [1])
    with pytest.raises(BadInput):
        found.allocator_sample(device, 0.0)


# the real torch


def test_the_real_cpu() -> None:
    found = TorchBackend(clock=lambda: 7.0)
    info = found.devices()[0]
    assert (info.id, info.usable, info.threads) == ("cpu", True, torch.get_num_threads())
    assert (found.free_bytes("cpu") or 0) > 0
    assert found.clock_seconds("cpu") == 7.0
    assert found.allocator_sample("cpu", 0.0) is None
    assert found.device_sample("cpu", 0.0) is None
    found.synchronize("cpu")
    found.empty_cache("cpu")


def test_threads_are_set_within_what_the_machine_has() -> None:
    found = TorchBackend()
    before = found.threads
    try:
        found.set_threads(1)
        assert found.threads == torch.get_num_threads() == found.devices()[0].threads == 1
        for wrong in (0, -3, 100_000):
            with pytest.raises(BadInput, match="threads are not possible"):
                found.set_threads(wrong)
    finally:
        torch.set_num_threads(before)


def test_the_facts_of_the_real_torch() -> None:
    facts = torch_facts(environ={"CUDA_VISIBLE_DEVICES": "1"})
    assert facts["torch_version"] == torch.__version__
    assert facts["cuda_version"] == torch.version.cuda
    assert facts["cuda_available"] == torch.cuda.is_available()
    assert facts["cuda_device_count"] == torch.cuda.device_count()
    assert (facts["cuda_visible_devices"], facts["default_dtype"]) == ("1", "float32")


def test_the_facts_of_a_cuda_build() -> None:
    facts = torch_facts(FakeCudaTorch(2), {})
    assert (facts["cuda_version"], facts["cuda_available"], facts["cuda_device_count"]) == ("12.6", True, 2)
    assert facts["cuda_visible_devices"] is None


# --- a driver that hangs


class Hanging:
    """A CUDA library of which one function hangs until it is let go."""

    def __init__(self, function: str) -> None:
        self.gate = threading.Event()
        self.function = function

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> int:
            if name == self.function:
                self.gate.wait()
            return 0

        return call


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount"])
def test_a_cuda_driver_that_hangs_is_a_reason_in_time(function: str) -> None:
    library = Hanging(function)
    driver = CudaDriver(library, environ={}, limit_s=0.05)
    assert driver.devices() == ()
    assert driver.problem is not None
    assert driver.problem.reason == f"{function} did not answer within 0.05 s"
    assert driver.cuda_version() is None
    assert driver.has_context(0) is None
    library.gate.set()
    until_nobody_hangs()


def test_an_enumeration_of_torch_s_that_hangs_is_a_reason_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_devices, "ENUMERATION_LIMIT_S", 0.05)
    gate = threading.Event()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gate.wait())
    assert torch_facts()["cuda_available"] is False
    assert torch_devices._cuda_available(torch) == (False, "torch.cuda.is_available did not answer within 0.05 s")
    gate.set()
    until_nobody_hangs()


def until_nobody_hangs() -> None:
    end = time.monotonic() + 10
    while any_abandoned():
        assert time.monotonic() < end
        time.sleep(0.002)
