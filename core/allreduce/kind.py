"""The kind `allreduce`: the sum of a tensor of every rank, in every rank; and how long it would take between virtual
GPUs, on a ring. Any thread; no torch until a run is checked.

    seconds = base + 2·(n-m) · hop + 2·(m-1) · network hop + 2·(n-1)/n · bytes / rate

for n cards in m machines. Of NCCL's protocols, Simple and LL (low latency), the faster one counts, as NCCL chooses. The
rate is that of the slowest link of the ring, in the order of the devices; the share of it that a large transfer reaches
is that of `core.virtual.device.cost`. Where two cards have no link, the way is PCIe through the host. Of a ring over
several machines an engine knows its own cards: the others are taken to have as many, and the network is assumed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Findings, bytes_text, count_text, parse_dtype, seconds_text
from devexplorer.core.benchmark.kind import (
    DTYPE,
    UNITS,
    BenchmarkKind,
    Entry,
    Figure,
    Headline,
    Option,
    RunInputs,
    figure,
    joined,
    named_devices,
    read,
    read_result,
    read_spec,
    spread_texts,
    verified_text,
    write,
)
from devexplorer.core.benchmark.spec import parse_byte_sizes
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.records import BaseResult, BaseSpec, Conditions, DeviceInfo, PeerLink, Record, Spread
from devexplorer.core.virtual.device.cost import LINK_EFFICIENCY, NETWORK_GB_S
from devexplorer.core.virtual.device.machine import topology

if TYPE_CHECKING:
    from devexplorer.core.benchmark.timing import Runner
    from devexplorer.core.devices.backend import DeviceRegistry


class Protocol(NamedTuple):
    """Of NCCL, for a ring."""

    base: float
    """Seconds of every all-reduce."""
    nvlink_hop: float
    """Seconds of a step over NVLink."""
    pcie_hop: float
    network_hop: float
    share: float
    """Of the link's rate."""
    beside_network: float
    """By how much the other hops are slower when some go through the network."""
    plateau: float
    """Through the network and with `PLATEAU_BYTES` a card: by how much all of them are."""


PROTOCOLS = (
    Protocol(8.4e-6, 3.4e-6, 5.7e-6, 9.6e-6, 1.0, 1.0, 1.9),
    Protocol(3.6e-6, 0.47e-6, 1.0e-6, 2.7e-6, 0.25, 1.8, 1.0),
)
"""Simple and LL: `baseLat`, `hwLat` and the factors of an all-reduce in src/graph/tuning.cc of NVIDIA/nccl, commit
01afd20. LL128 is left out: it is not for every card."""
PLATEAU_BYTES = 65536 / 16


def ring_seconds(gpus: Sequence[tuple[str, Profile]], nbytes: int, world: int | None = None) -> float:
    """Of one all-reduce of so many bytes between these virtual GPUs; `world`: and those of other machines, so many
    together. There are two at least."""
    count = len(gpus) if world is None else world
    machines = math.ceil(count / len(gpus))
    links = {frozenset((link.a, link.b)): link for link in topology(gpus).links}
    following = [*gpus[1:], gpus[0]] if machines == 1 else gpus[1:]
    ring = [(links.get(frozenset((a[0], b[0]))), a[1], b[1]) for a, b in zip(gpus, following, strict=False)]
    rates = [_rate_gb_s(*step) for step in ring]
    if machines > 1:
        rates += [NETWORK_GB_S, gpus[0][1].host_gb_s, gpus[-1][1].host_gb_s]
    rate = min(rates) * 1e9 * LINK_EFFICIENCY
    nvlink = all(_fast(link) for link, _, _ in ring)
    moved = 2 * (count - 1) / count * nbytes
    return min(
        _hops(protocol, count, machines, nbytes, nvlink) + moved / (rate * protocol.share) for protocol in PROTOCOLS
    )


def _hops(protocol: Protocol, count: int, machines: int, nbytes: int, nvlink: bool) -> float:
    hop = protocol.nvlink_hop if nvlink else protocol.pcie_hop
    if machines == 1:
        return protocol.base + 2 * (count - 1) * hop
    within = 2 * (count - machines) * hop * protocol.beside_network
    seconds = protocol.base + within + 2 * (machines - 1) * protocol.network_hop
    return seconds * (protocol.plateau if nbytes >= count * PLATEAU_BYTES else 1.0)


def _rate_gb_s(link: PeerLink | None, a: Profile, b: Profile) -> float:
    return min(a.host_gb_s, b.host_gb_s) if link is None or link.gb_s is None else link.gb_s


def _fast(link: PeerLink | None) -> bool:
    """NVLink; AMD's xGMI is taken to be like it."""
    return link is not None and link.code is not None and link.code.startswith(("NV", "XGMI"))


FACTOR = 2
"""Between the sizes of a range, as nccl-tests has it with `-f 2`."""
MOST_BYTES = 1 << 62
"""Of one tensor in an imported file."""


class Rendezvous(msgspec.Struct, frozen=True):
    """Where the ranks of several engines meet, and which of them are this engine's."""

    address: str
    """Of the machine that has rank 0, as the others reach it."""
    port: int
    world_size: int
    """Ranks of all engines together."""
    first_rank: int = 0
    """The lowest rank of this engine; the others follow it."""


class AllReduceSpec(BaseSpec, tag="allreduce"):
    """The sum of one tensor of every rank, in every rank: `torch.distributed.all_reduce`, in place, in every size."""

    devices: tuple[str, ...]
    """CUDA devices or virtual GPUs with a rank each, or the CPU alone."""
    ranks: int | None = None
    """Processes on the CPU; None: as many as there are devices."""
    dtype: str = "float32"
    sizes: tuple[int, ...] = tuple(1 << power for power in range(12, 27))
    """Bytes of each rank's tensor."""
    seconds: float = 0.2
    """Measured time per size."""
    iterations: int | None = None
    """Stop a size after so many even when time is left."""
    limit_seconds: float = 60.0
    """For all ranks to meet, and for the slowest of them to answer."""
    rendezvous: Rendezvous | None = None
    """Ranks of other engines take part."""

    @property
    def device(self) -> str:
        """The device that the run is listed under."""
        return self.devices[0] if self.devices else "cpu"

    @property
    def own_ranks(self) -> int:
        """Ranks of this engine."""
        return len(self.devices) if self.ranks is None else self.ranks

    @property
    def world_size(self) -> int:
        """Ranks of all engines together."""
        return self.own_ranks if self.rendezvous is None else self.rendezvous.world_size


class AllReduceRow(Record, omit_defaults=True):
    """One size of an all-reduce. Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there), decimal GB/s."""

    bytes: int
    """Of each rank's tensor."""
    algorithm_gb_per_s: Spread | None = None
    """Bytes over seconds; None with a reason: not measured, or its values are wrong."""
    bus_gb_per_s: Spread | None = None
    """That times 2·(n-1)/n, which is comparable with the rate of a link; None for one rank, which has no link."""
    operation_seconds: Spread | None = None
    """Of one all-reduce, by blocks; of the slowest rank."""
    iterations: int = 0
    verified: bool | None = None
    """Whether every rank of this engine had the exact sum, before and after it was timed."""
    reason: str | None = None
    simulated: bool = False
    seconds: float | None = None
    """All blocks together."""


class AllReduceResult(BaseResult, tag="allreduce"):
    """A finished (or stopped) all-reduce."""

    spec: AllReduceSpec
    backend: str
    """`nccl` or `gloo`; of virtual GPUs what checked the values."""
    rows: tuple[AllReduceRow, ...]


class AllReduceEntry(Entry, kw_only=True):
    """One size."""

    devices: tuple[str, ...]
    ranks: int
    """Of all engines together."""
    backend: str
    bytes: int
    dtype: str
    device: str = ""
    algorithm_gb_per_s: Spread | None = None
    bus_gb_per_s: Spread | None = None
    operation_seconds: Spread | None = None
    own_ranks: int | None = None
    """Of this engine; null: all of them."""
    first_rank: int = 0
    reason: str | None = None


class AllReduceKind(BenchmarkKind[AllReduceSpec, AllReduceResult]):
    """Sums over all ranks, in many sizes."""

    spec, result, entry = AllReduceSpec, AllReduceResult, AllReduceEntry
    part, page = AllReduceRow, "devexplorer.gui.allreduce.page:AllReducePage"
    title, about = "All-reduce", "measure the sum over ranks: between cards, processes, machines"
    meaning = "The sum of one tensor of every rank, in every rank: bandwidth by size, and whether the values are right"
    columns = (">size", ">algorithm GB/s", ">bus GB/s", ">p20", ">p80", ">one all-reduce", "verified", "")
    across = "bytes of each rank's tensor"
    wrong_values = "a rank has another sum than the others sent"
    options = (
        Option("--device", "CUDA devices or virtual GPUs, a rank each, or cpu (default all of a kind)", "D", "", True),
        DTYPE,
        Option("--size", 'bytes of each rank\'s tensor: "1M,64M" or "4K:1G" (default 4K:64M)', "SIZES"),
        Option("--seconds", "how long to measure each size (default 0.2)", "S"),
        Option("--iterations", "stop a size after so many", "N"),
        Option("--ranks", "processes on the CPU (default 4)", "N"),
        Option("--rendezvous", "where rank 0 listens, for ranks on several machines", "HOST:PORT"),
        Option("--world-size", "ranks on all machines together, with --rendezvous", "N"),
        Option("--first-rank", "the lowest rank of this machine, with --rendezvous (default 0)", "N"),
        Option("--limit", "how long the ranks wait for each other (default 60)", "S"),
    )

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[AllReduceSpec]:
        default = AllReduceSpec(devices=())
        return [
            AllReduceSpec(
                devices=named_devices(arguments, default=()),
                ranks=findings.count(arguments.ranks, "--ranks"),
                dtype=findings.parsed(arguments.dtype, parse_dtype, default.dtype),
                sizes=findings.parsed(arguments.size, partial(parse_byte_sizes, factor=FACTOR), default.sizes),
                seconds=findings.seconds(arguments.seconds, "--seconds") or default.seconds,
                iterations=findings.count(arguments.iterations, "--iterations"),
                limit_seconds=findings.seconds(arguments.limit, "--limit") or default.limit_seconds,
                rendezvous=_rendezvous(arguments, findings),
            )
        ]

    def on_devices(self, spec: AllReduceSpec, devices: Sequence[DeviceInfo]) -> AllReduceSpec:
        """Where none was named: the virtual GPUs if there are some (someone asked for them), else the CUDA devices,
        else the CPU; the CPU as well where a number of ranks is given."""
        if spec.devices:
            return spec
        usable = [info for info in devices if info.usable]
        groups = [tuple(info.id for info in usable if info.kind == kind) for kind in ("virtual", "cuda")]
        chosen = next((group for group in groups if group and spec.ranks is None), ("cpu",))
        return replace(spec, devices=chosen)

    def devices(self, spec: AllReduceSpec) -> tuple[str, ...]:
        return tuple(dict.fromkeys(spec.devices))

    def check(self, spec: AllReduceSpec, registry: DeviceRegistry) -> AllReduceSpec:
        from devexplorer.core.allreduce.run import check_allreduce  # torch

        return check_allreduce(spec, registry)

    def runner(self, spec: AllReduceSpec, inputs: RunInputs) -> Runner[Any]:
        from devexplorer.core.allreduce.run import AllReduceRun  # torch

        return AllReduceRun(spec, inputs.run, inputs.registry, inputs.stop, inputs.clock)

    def float32_mode(self, spec: AllReduceSpec) -> str | None:
        """None: nothing is multiplied."""
        return None

    def caption(self, spec: AllReduceSpec) -> str:
        return f"allreduce {spec.dtype} between {count_text(spec.world_size, 'rank')}"

    def choice_text(self, spec: AllReduceSpec, where: str) -> str:
        return f"{where}, {count_text(spec.world_size, 'rank')}, {spec.dtype}"

    def figures(self, result: AllReduceResult) -> tuple[Figure, ...]:
        ranks = count_text(result.spec.world_size, "rank")
        return tuple(
            figure((ranks, bytes_text(row.bytes)), "gb_per_s", rate, row, row.simulated, float(row.bytes))
            for row in result.rows
            if (rate := rate_of(row)) is not None
        )

    def headline(self, result: AllReduceResult) -> Headline:
        row = fastest(result.rows)
        return Headline(None if row is None else rate_of(row), UNITS["gb_per_s"])

    def subject(self, result: AllReduceResult) -> str:
        row, ranks = fastest(result.rows), count_text(result.spec.world_size, "rank")
        return ranks if row is None else f"{bytes_text(row.bytes, 0)} between {ranks}"

    def subject_tip(self, result: AllReduceResult) -> str:
        return f"The best bus bandwidth of {count_text(len(result.rows), 'size')}: {self.subject(result)}"

    def rows(self, result: AllReduceResult, conditions: Conditions) -> list[tuple[str, ...]]:
        return [
            (
                bytes_text(row.bytes, 0), spread_texts(row.algorithm_gb_per_s)[0], *spread_texts(row.bus_gb_per_s),
                seconds_text(row.operation_seconds.median if row.operation_seconds is not None else None),
                verified_text(row.verified, "no: the sums differ"),
                row.reason or joined(simulated=row.simulated),
            )
            for row in result.rows
        ]  # fmt: skip

    def summary(self, result: AllReduceResult, conditions: Conditions) -> str:
        spec = result.spec
        meeting, ranks = spec.rendezvous, count_text(spec.world_size, "rank")
        own = "" if meeting is None else f"{spec.own_ranks} of them here, from rank {meeting.first_rank}"
        few = len(spec.devices) <= 4
        on = f"{ranks} on {', '.join(spec.devices) if few else count_text(len(spec.devices), 'device')}"
        how = f"{result.backend}, {spec.dtype}, in place"
        if result.simulated:
            network = "" if meeting is None else f" over {NETWORK_GB_S:g} GB/s between machines"
            how = f"modelled as a ring{network}, values checked over {how}"
        return joined(on, own, how, simulated=result.simulated, stopped=result.stopped)

    def entries(self, result: AllReduceResult, conditions: Conditions | None) -> list[Entry]:
        spec = result.spec
        shared = {
            "device": spec.device,
            "ranks": spec.world_size,
            "first_rank": 0 if spec.rendezvous is None else spec.rendezvous.first_rank,
        }
        return [write(AllReduceEntry, row, result, spec, **shared) for row in result.rows]

    def read(self, entries: Sequence[Any]) -> AllReduceResult:
        first = entries[0]
        rows = tuple(marked(read(entry, AllReduceRow), entry.devices) for entry in entries)
        elsewhere = first.ranks != len(first.devices) and first.devices != ("cpu",)
        meeting = Rendezvous(address="", port=0, world_size=first.ranks, first_rank=first.first_rank)
        spec = read_spec(
            first,
            AllReduceSpec,
            ranks=len(first.devices) if elsewhere else first.ranks,
            sizes=tuple(row.bytes for row in rows),
            rendezvous=meeting if elsewhere or first.first_rank else None,
        )
        simulated = any(row.simulated for row in rows)
        return read_result(entries, AllReduceResult, spec=spec, rows=rows, simulated=simulated)

    def belong_together(self, first: Any, other: Any) -> bool:
        key = ("devices", "ranks", "own_ranks", "first_rank", "backend", "dtype", "conditions")
        return all(getattr(first, name) == getattr(other, name) for name in key)

    def check_imported(self, result: AllReduceResult) -> AllReduceResult:
        if not all(0 < row.bytes < MOST_BYTES for row in result.rows):
            raise BadInput("an all-reduce in it has no size")
        if not result.spec.devices or not 0 < result.spec.world_size < 1 << 31:
            raise BadInput("an all-reduce in it has no ranks")
        return replace(result, rows=tuple(marked(row, result.spec.devices) for row in result.rows))

    def incomparable(self, results: Sequence[AllReduceResult]) -> str:
        if len({result.spec.world_size for result in results}) == 1:
            return ""
        return "these all-reduces had different numbers of ranks; choose runs with the same number"


def _rendezvous(arguments: argparse.Namespace, findings: Findings) -> Rendezvous | None:
    """Where the ranks meet; None where they are all of one engine."""
    world = findings.count(arguments.world_size, "--world-size")
    first = arguments.first_rank
    if first is not None and not (first.isascii() and first.isdigit()):
        findings.add(f"--first-rank {first} is no rank; ranks count from 0")
        first = None
    if arguments.rendezvous is None:
        for name, value in (("--world-size", arguments.world_size), ("--first-rank", arguments.first_rank)):
            if value is not None:
                findings.add(
                    f"{name} is for ranks on several machines; say where they meet with --rendezvous HOST:PORT"
                )
        return None
    address, colon, port = arguments.rendezvous.rpartition(":")
    if not address or not colon or not (port.isascii() and port.isdigit()):
        findings.add(f"--rendezvous '{arguments.rendezvous}' is no place to meet; write HOST:PORT, like node0:29500")
        return None
    if world is None:
        if arguments.world_size is None:
            findings.add("--rendezvous needs the number of ranks on all machines together; add --world-size N")
        return None
    return Rendezvous(address=address.strip("[]"), port=int(port[:9]), world_size=world, first_rank=int(first or 0))


def rate_of(row: AllReduceRow) -> Spread | None:
    """Bus bandwidth; of one rank, which has no bus, algorithm bandwidth."""
    return row.bus_gb_per_s or row.algorithm_gb_per_s


def fastest(rows: Sequence[AllReduceRow]) -> AllReduceRow | None:
    """Of the sizes whose values were right."""
    rated = [(rate.median, row) for row in rows if row.verified is not False and (rate := rate_of(row))]
    return max(rated, key=lambda pair: pair[0])[1] if rated else None


def marked(row: AllReduceRow, devices: Sequence[str]) -> AllReduceRow:
    """The size, simulated where virtual GPUs took part, whatever a file says."""
    return replace(row, simulated=row.simulated or any(device.startswith("vgpu:") for device in devices))
