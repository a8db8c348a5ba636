"""Whether an all-reduce can run here. No thread; torch is asked what it was built with."""

from __future__ import annotations

from msgspec.structs import replace
from torch import distributed

from devexplorer.core.base import bytes_text, item_bytes, parse_seconds
from devexplorer.core.benchmark.allreduce.messages import CPU_RANKS, DTYPES
from devexplorer.core.benchmark.checking import Checks
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import AllReduceSpec

MOST_RANKS = 4096
MOST_OWN_RANKS = 256


def check_allreduce(spec: AllReduceSpec, registry: DeviceRegistry) -> AllReduceSpec:
    """The specification with canonical device names, the number of its ranks, and sizes of whole elements. Raises
    `BadInput` with everything that keeps it from running; allocates nothing."""
    checks = Checks(registry)
    if not distributed.is_available() or not (distributed.is_gloo_available() or distributed.is_nccl_available()):
        checks.add("this torch was built without torch.distributed or its backends gloo and nccl, so ranks cannot meet")
    devices = checks.devices(spec.devices or ("cpu",))
    twice = next((device for device in devices if devices.count(device) > 1), None)
    if twice is not None:
        checks.add(f"{twice} is named twice; name each device once, or give the CPU a number of ranks")
    kinds = {registry.info(device).kind for device in devices}
    if other := kinds - {"cpu", "cuda", "virtual"}:
        checks.add(
            f"an all-reduce runs between CUDA devices, virtual GPUs, or processes on the CPU, not on {min(other)}"
        )
    elif len(kinds) > 1:
        checks.add(f"ranks on {' and '.join(devices)} cannot be in one world; choose devices of one kind")
    if kinds != {"cpu"}:
        ranks = len(devices)
    elif spec.ranks is None:
        ranks = CPU_RANKS
    else:
        ranks = spec.ranks
    checked = replace(spec, devices=devices, ranks=ranks)
    _check_ranks(spec, checked, kinds, checks)
    if spec.dtype not in DTYPES:
        checks.add(f"an all-reduce of {spec.dtype} is not measured; take one of {', '.join(DTYPES)}")
        checks.demand_none()
    if not spec.sizes or min(spec.sizes) < 1:
        checks.add("an all-reduce needs a size of at least 1 byte")
    each = item_bytes(spec.dtype)
    checked = replace(checked, sizes=tuple(dict.fromkeys(max(size // each, 1) * each for size in spec.sizes)))
    checks.checked(lambda: parse_seconds(spec.seconds))
    checks.checked(lambda: parse_seconds(spec.limit_seconds))
    if spec.iterations is not None and spec.iterations < 1:
        checks.add(f"{spec.iterations} iterations cannot be measured; at least 1 is needed")
    largest = max(checked.sizes, default=0)
    for device in devices:
        needed = (ranks if device == "cpu" else 1) * 2 * largest  # the tensor, and what the backend puts beside it
        checks.fits(device, needed, f"tensors of {bytes_text(largest)} with their buffers need")
    checks.demand_none()
    return checked


def _check_ranks(spec: AllReduceSpec, checked: AllReduceSpec, kinds: set[str], checks: Checks) -> None:
    own = checked.own_ranks
    if spec.ranks is not None and spec.ranks != own:
        checks.add(f"every device has one rank, so there are {own}, not {spec.ranks}; only the CPU can have several")
    if not 1 <= own <= MOST_OWN_RANKS:
        checks.add(f"{own} ranks cannot be started; from 1 to {MOST_OWN_RANKS} are possible")
    meeting = spec.rendezvous
    if meeting is None:
        if own == 1 and kinds != {"cuda"}:
            checks.add(
                "an all-reduce needs two ranks at least; name more virtual GPUs, or take the CPU and --ranks 4",
                virtual_helps=True,
            )
        return
    if not meeting.address or not 1 <= meeting.port <= 65535:
        checks.add(f"'{meeting.address}:{meeting.port}' is no place to meet; write HOST:PORT with a port up to 65535")
    if not 2 <= meeting.world_size <= MOST_RANKS:
        checks.add(f"a world of {meeting.world_size} ranks is not possible; it has from 2 to {MOST_RANKS}")
    elif not 0 <= meeting.first_rank <= meeting.world_size - own:
        last = meeting.first_rank + own - 1
        checks.add(
            f"ranks {meeting.first_rank} to {last} are not in a world of {meeting.world_size}; they count from 0 to"
            f" {meeting.world_size - 1}"
        )


def backend_of(spec: AllReduceSpec) -> str:
    """`nccl` between CUDA devices where this torch has it (for AMD's it is RCCL), else `gloo`."""
    return "nccl" if spec.device.startswith("cuda") and distributed.is_nccl_available() else "gloo"
