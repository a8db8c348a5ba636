"""Made-up devices and objects for the tests of the panels."""

from __future__ import annotations

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import (
    Affinity,
    AllocatorSample,
    BenchPoint,
    BenchPreparing,
    DeviceDetails,
    DeviceInfo,
    DeviceSample,
    EngineReady,
    MatmulSpec,
    NvLink,
    ObjectChanged,
    ObjectSnapshot,
    PeerLink,
    Problem,
    ProcessUse,
    Row,
    Topology,
)
from devexplorer.core.session.state import State

GIB, MIB = 1 << 30, 1 << 20

CPU = DeviceInfo(
    id="cpu", kind="cpu", name="Example CPU", threads=16, memory_total_bytes=64 * GIB, memory_used_bytes=6 * GIB
)
CUDA = DeviceInfo(
    id="cuda:0", kind="cuda", name="NVIDIA A10", nvml_index=1, cuda_ordinal=0, memory_total_bytes=24 * GIB
)
VGPU = DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", memory_total_bytes=16 * GIB, simulated=True)
OLD = DeviceInfo(
    id="nvml:2", kind="nvml", name="GTX 980", nvml_index=2, usable=False, reason="It is too old for this torch."
)

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
"""The events of an engine that is ready."""

MEASURED = (
    BenchPreparing(run=1, spec=MatmulSpec(device="cpu", m=64, n=64, k=64), simulated=False),
    BenchPoint(run=1, device="cpu", time_unix_s=1_700_000_000.0, tflops=0.1, iterations=9, seconds=0.05),
)
"""What makes the window have a throughput to show."""


def state_with(*infos: DeviceInfo, problems: tuple[Problem, ...] = ()) -> State:
    """A state that knows these devices and has no reading yet."""
    state = State()
    state.set_catalog(Catalog(infos, problems))
    return state


def many(count: int) -> State:
    """A state with the CPU and `count - 1` virtual GPUs."""
    cards = [
        DeviceInfo(id=f"vgpu:{i}", kind="virtual", name="Tesla T4", memory_total_bytes=GIB, simulated=True)
        for i in range(count - 1)
    ]
    return state_with(CPU, *cards)


def sample(state: State, device: str, used: int, **readings: float) -> None:
    """One reading of the driver."""
    state.apply(DeviceSample(device=device, time_unix_s=1.0, memory_used_bytes=used, **readings))


def allocator(state: State, device: str, workspace: int, allocated: int, reserved: int, context: int) -> None:
    """One reading of the allocator."""
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


def tensor_row(
    path: str, depth: int, device: str = "cpu", mib: int = 1, kind: str = "parameter", **more: object
) -> Row:
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
    """A model with these rows."""
    return ObjectSnapshot(
        name=name, kind="model", type=rows[0].type, rows=rows, bytes_by_device={}, tensors_by_device={}, training=True
    )


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
    """Add these objects to the state."""
    for snapshot in snapshots:
        state.apply(ObjectChanged(snapshot=snapshot))


# --- whole servers, for panels with all details
# ----------------------------------------------------------------


def server(count: int, *, nvlinks: int = 18) -> State:
    """The CPU and `count` cards with every field known, on two CPU sockets, a PCIe switch for each pair, all connected
    by NVLink."""
    state = state_with(CPU, *(server_card(index) for index in range(count)))
    for index in range(count):
        state.apply(server_sample(index))
        state.apply(server_details(index, nvlinks))
    state.apply(server_topology(count, nvlinks))
    return state


def server_card(index: int) -> DeviceInfo:
    """One card of `server`."""
    return DeviceInfo(
        id=f"cuda:{index}",
        kind="cuda",
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-{index:08x}-1b2c-4d5e-8f90-0123456789ab",
        bus_id=f"00000000:{0x18 + 16 * index:02X}:00.0",
        nvml_index=index,
        cuda_ordinal=index,
        memory_total_bytes=80 * GIB,
        compute_capability="9.0",
        driver_version="570.124.06",
        cuda_version="12.8",
        memory_gb_s=3352.0,
    )


def server_sample(index: int, **changed: object) -> DeviceSample:
    """One reading of a card of `server`."""
    fields: dict[str, object] = {
        "device": f"cuda:{index}",
        "time_unix_s": 1.0,
        "memory_used_bytes": (9 + 4 * index % 60) * GIB + 123 * MIB,
        "memory_free_bytes": (70 - 4 * index % 60) * GIB,
        "memory_reserved_bytes": 569 * MIB,
        "memory_total_bytes": 80 * GIB,
        "utilization_percent": 97.0,
        "memory_utilization_percent": 61.0,
        "encoder_percent": 0.0,
        "decoder_percent": 3.0,
        "temperature_c": 64.0,
        "memory_temperature_c": 71.0,
        "power_w": 687.4,
        "power_instant_w": 702.9,
        "power_cap_w": 700.0,
        "energy_j": 8.123e8,
        "sm_clock_mhz": 1755,
        "memory_clock_mhz": 2619,
        "graphics_clock_mhz": 1755,
        "video_clock_mhz": 1365,
        "fan_percent": 42.0,
        "performance_state": "P0",
        "throttle_reasons": ("power cap",) if index == 0 else (),
        "pcie_generation": 5,
        "pcie_width": 16,
        "pcie_tx_bytes_s": 1.2e9,
        "pcie_rx_bytes_s": 3.4e8,
        "pcie_replays": 0,
        "nvlink_tx_bytes_s": 2.1e11,
        "nvlink_rx_bytes_s": 2.0e11,
        "ecc_corrected": 2,
        "ecc_uncorrected": 0,
        "processes": (
            ProcessUse(
                pid=4242 + index,
                name="python",
                memory_bytes=8 * GIB,
                user="ada",
                command="python train.py --config configs/large.yaml --resume",
                kind="compute",
                utilization_percent=93.0,
            ),
            ProcessUse(
                pid=99,
                name="Xorg",
                memory_bytes=40 * MIB,
                user="root",
                command="/usr/lib/xorg/Xorg :0",
                kind="graphics",
            ),
        ),
    }
    return DeviceSample(**(fields | changed))


def server_details(index: int, links: int = 18, **changed: object) -> DeviceDetails:
    """The details of a card of `server`."""
    each = tuple(
        NvLink(
            link=link,
            active=True,
            version="4.0",
            remote_bus_id=f"00000000:{0xA0 + link:02X}:00.0",
            tx_bytes_s=1.1e10,
            rx_bytes_s=1.0e10,
        )
        for link in range(links)
    )
    fields: dict[str, object] = {
        "device": f"cuda:{index}",
        "time_unix_s": 1.0,
        "architecture": "Hopper",
        "brand": "NVIDIA",
        "serial": f"16502230{index:05d}",
        "board_part_number": "692-2G520-0200-000",
        "vbios_version": "96.00.74.00.11",
        "driver_version": "570.124.06",
        "cuda_version": "12.8",
        "sm_count": 132,
        "cuda_cores": 16896,
        "memory_bus_bits": 5120,
        "persistence": True,
        "compute_mode": "Default",
        "accounting": False,
        "mig": False,
        "mig_pending": True,
        "display_active": False,
        "fans_percent": (42.0, 40.0),
        "temperature_slowdown_c": 87.0,
        "temperature_shutdown_c": 92.0,
        "temperature_limit_c": 85.0,
        "temperature_memory_limit_c": 95.0,
        "power_limit_default_w": 700.0,
        "power_limit_min_w": 200.0,
        "power_limit_max_w": 700.0,
        "sm_clock_max_mhz": 1980,
        "graphics_clock_max_mhz": 1980,
        "memory_clock_max_mhz": 2619,
        "video_clock_max_mhz": 1545,
        "graphics_clock_application_mhz": 1980,
        "memory_clock_application_mhz": 2619,
        "pcie_generation_max": 5,
        "pcie_width_max": 16,
        "ecc": True,
        "ecc_pending": True,
        "ecc_corrected_total": 17,
        "ecc_uncorrected_total": 0,
        "remapped_rows_corrected": 1,
        "remapped_rows_uncorrected": 0,
        "remapping_pending": False,
        "remapping_failed": False,
        "nvlinks": each,
        "cpus": "0-31,64-95" if index < 4 else "32-63,96-127",
        "numa_node": 0 if index < 4 else 1,
        "missing": {
            "retired_pages_single_bit": "this card replaces rows instead",
            "retired_pages_double_bit": "this card replaces rows instead",
            "retired_pages_pending": "this card replaces rows instead",
        },
    }
    return DeviceDetails(**(fields | changed))


def server_topology(count: int, nvlinks: int = 18) -> Topology:
    """NVLink between all cards if there is any; otherwise PCIe: a switch for each pair of cards, two sockets."""
    half = max(count // 2, 1)

    def way(a: int, b: int) -> tuple[str, str]:
        if a // 2 == b // 2 and a // half == b // half:
            return "PIX", "PCIe switch"
        return ("NODE", "NUMA node") if a // half == b // half else ("SYS", "system")

    links = []
    for a in range(count):
        for b in range(a + 1, count):
            code, level = way(a, b)
            links.append(
                PeerLink(
                    a=f"cuda:{a}",
                    b=f"cuda:{b}",
                    level=level,
                    code=f"NV{nvlinks}" if nvlinks else code,
                    nvlinks=nvlinks,
                    peer_read="ok",
                    peer_write="ok",
                    peer_atomics="ok" if nvlinks else "the chipset does not support it",
                )
            )
    near = tuple(
        Affinity(device=f"cuda:{i}", cpus="0-31,64-95" if i < half else "32-63,96-127", numa_node=int(i >= half))
        for i in range(count)
    )
    return Topology(source="nvml", links=tuple(links), affinities=near)
