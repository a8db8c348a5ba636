"""Invented devices and objects for the tests of the panels."""

from __future__ import annotations

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records.devices import AllocatorSample, DeviceInfo, DeviceSample, Problem
from devexplorer.core.records.messages import EngineReady, ObjectChanged
from devexplorer.core.records.objects import ObjectSnapshot, Row
from devexplorer.core.state import State

GIB, MIB = 1 << 30, 1 << 20

CPU = DeviceInfo(id="cpu", kind="cpu", name="Example CPU", threads=16, memory_total_bytes=64 * GIB, memory_used_bytes=6 * GIB)
CUDA = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA A10", nvml_index=1, cuda_ordinal=0, memory_total_bytes=24 * GIB)
VGPU = DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", memory_total_bytes=16 * GIB, simulated=True)
OLD = DeviceInfo(id="nvml:2", kind="nvml", name="GTX 980", nvml_index=2, usable=False, reason="It is too old for this torch.")

ENGINE = EngineReady(
    pid=1,
    python_version="3.11",
    torch_version="2.13.0",
    cuda_version=None,
    cuda_available=False,
    cuda_device_count=0,
    cuda_visible_devices=None,
    threads=2,
    virtual_unavailable=None,
    recipes={},
)
"""What an engine says when it is ready."""


def state_with(*infos: DeviceInfo, problems: tuple[Problem, ...] = ()) -> State:
    """A state that knows these devices and has no reading yet."""
    state = State()
    state.set_catalog(Catalog(infos, problems))
    return state


def many(count: int) -> State:
    """A state with the CPU and `count - 1` virtual GPUs."""
    cards = [DeviceInfo(id=f"vgpu:{i}", kind="virtual", name="Tesla T4", memory_total_bytes=GIB, simulated=True) for i in range(count - 1)]
    return state_with(CPU, *cards)


def sample(state: State, device: str, used: int, **readings: float) -> None:
    """One reading from outside."""
    state.apply(DeviceSample(device=device, time_unix_s=1.0, memory_used_bytes=used, **readings))


def allocator(state: State, device: str, workspace: int, allocated: int, reserved: int, context: int) -> None:
    """One reading from inside."""
    state.apply(
        AllocatorSample(
            device=device,
            time_unix_s=1.0,
            allocated_bytes=allocated,
            reserved_bytes=reserved,
            context_bytes=context,
            workspace_bytes=workspace,
        )
    )


def tensor_row(path: str, depth: int, device: str = "cpu", mib: int = 1, kind: str = "parameter", **more: object) -> Row:
    """A tensor of `mib` MiB."""
    fields: dict[str, object] = {
        "path": path,
        "name": path.rpartition(".")[2],
        "kind": kind,
        "type": "Parameter" if kind == "parameter" else "Tensor",
        "depth": depth,
        "shape": (mib, 256, 1024),
        "dtype": "float32",
        "devices": (device,),
        "bytes": mib * MIB,
        "elements": mib * MIB // 4,
        "requires_grad": kind == "parameter",
        "is_leaf": True,
    }
    return Row(**(fields | more))


def module_row(path: str, depth: int, type_name: str, devices: tuple[str, ...], mib: int = 1, **more: object) -> Row:
    """A module that holds `mib` MiB."""
    return Row(
        path=path,
        name=path.rpartition(".")[2],
        kind="module",
        type=type_name,
        depth=depth,
        dtype="float32",
        devices=devices,
        bytes=mib * MIB,
        **more,
    )


def model(name: str, *rows: Row) -> ObjectSnapshot:
    """A model of these rows."""
    return ObjectSnapshot(name=name, kind="model", type=rows[0].type, rows=rows, bytes_by_device={}, tensors_by_device={}, training=True)


def mlp(name: str = "mlp", device: str = "cpu", *, gradients: bool = False) -> ObjectSnapshot:
    """Two linear layers, with or without gradients."""
    rows = [module_row("", 0, "MLP", (device,), 6)]
    for layer in ("hidden", "out"):
        rows.append(module_row(layer, 1, "Linear", (device,), 3))
        for part, mib in (("weight", 2), ("bias", 1)):
            rows.append(tensor_row(f"{layer}.{part}", 2, device, mib))
            if gradients:
                rows.append(tensor_row(f"{layer}.{part}.grad", 2, device, mib, kind="gradient"))
    return model(name, *rows)


def tensor(name: str, device: str = "cpu", mib: int = 1, **more: object) -> ObjectSnapshot:
    """A single tensor."""
    return ObjectSnapshot(
        name=name,
        kind="tensor",
        type="Tensor",
        rows=(tensor_row("", 0, device, mib, kind="tensor", **more),),
        bytes_by_device={device: mib * MIB},
        tensors_by_device={device: 1},
    )


def show(state: State, *snapshots: ObjectSnapshot) -> None:
    """Have the state know these objects."""
    for snapshot in snapshots:
        state.apply(ObjectChanged(snapshot=snapshot))
