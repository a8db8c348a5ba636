"""How long a real card would take: a roofline over the profile, and the simulated clock that adds it up. No torch; any
thread.

    seconds of an operation = max(FLOP / (peak · COMPUTE), bytes / (bandwidth · MEMORY)) + LAUNCH
    seconds of a copy       = bytes / (slower link · LINK) + COPY

Every constant is an assumption with its source beside it; docs/virtual_gpus.md repeats them. None of them is random.
Five published products give the compute factors; docs/virtual_gpus.md says, for every published product, how far the
model is off with factors that were not taken from it (tests/benchmarks/cost_model.py computes that).
"""

from __future__ import annotations

import threading

from devexplorer.core.devices.profiles import Profile

LAUNCH_SECONDS = 4e-6
"""What each kernel costs beyond its work: a few microseconds. NVIDIA's article "Getting Started with CUDA Graphs" puts
back-to-back short kernels at 3.8 µs each; cited from memory."""


def _reached(tflops: float, datasheet: float, m: int, n: int, k: int) -> float:
    """Share of the datasheet rate in a published M×N×K product, without its launch."""
    flop = 2 * m * n * k
    return flop / (flop / (tflops * 1e12) - LAUNCH_SECONDS) / (datasheet * 1e12)


COMPUTE_EFFICIENCY = {
    "8.0": _reached(285, 312, 18432, 1536, 30720),  # NVIDIA A100 80GB PCIe
    "9.0": _reached(850, 989, 1536, 2816, 40960),  # NVIDIA H200
    "10.0": _reached(1737, 2250, 4096, 8192, 3072),  # NVIDIA B200
    "gfx942": _reached(676, 1307.4, 19456, 3072, 8192),  # AMD Instinct MI300X
}
"""Share of the datasheet rate that large products reach, by architecture: of each, the bfloat16 row that was measured
with the newest method in the mamf-finder tables of stas00/ml-engineering (`resources/reference_tflops.csv`). The rows
of its other cards check it."""

OTHER_COMPUTE_EFFICIENCY = COMPUTE_EFFICIENCY["9.0"]
"""For architectures without a published product: the median of NVIDIA's three."""

EIGHT_BIT_EFFICIENCY = _reached(1525, 1979, 1280, 16896, 16384) / COMPUTE_EFFICIENCY["9.0"]
"""What 8-bit products reach of their datasheet rate, relative to bfloat16: float8 on the H200, from the same tables.
float8 on the other cards checks it; that int8 is like float8 is an assumption."""

MEMORY_EFFICIENCY = 0.88
"""Share of the datasheet bandwidth that a streaming kernel reaches: 1.80 of 2.04 TB/s on an A100 80GB SXM, confirmed by
Nsight Compute (https://forums.developer.nvidia.com/t/trouble-to-reach-peak-bandwidth-of-a100/339083)."""

LINK_EFFICIENCY = 12.36 / 15.75
"""Share of a link's rate that a large copy reaches: the sample output in nvbandwidth's README, 12.36 GB/s, taken to be
PCIe 3 x16."""

COPY_SECONDS = 6e-6
"""What each copy costs beyond its bytes: "approximately 5-7 µs" for cudaMemcpyAsync (DualPath, arXiv 2602.21548,
section 5.2)."""

FLOAT64_SHARE = {"6.0": 1 / 2, "6.1": 1 / 32, "7.0": 1 / 2, "7.5": 1 / 32, "8.0": 1 / 2, "8.6": 1 / 64, "8.9": 1 / 64,
                 "9.0": 1 / 2, "10.0": 1 / 2,
                 "12.0": 1 / 64, "gfx90a": 1.0, "gfx942": 1 / 2}  # fmt: skip
"""float64's share of the float32 rate by compute capability: the arithmetic throughput table of the CUDA C++
Programming Guide (vector units; float64 tensor cores are left out), and AMD's datasheets of the MI300X (81.7 of
163.4 TFLOP/s) and, from memory, of the MI250X (both kinds of units run float64 at float32's rate). Elsewhere 1/64."""


def compute_efficiency(compute_capability: str, dtype: str) -> float:
    """Share of the datasheet rate that large products reach on a chip of this architecture."""
    share = COMPUTE_EFFICIENCY.get(compute_capability, OTHER_COMPUTE_EFFICIENCY)
    return share * EIGHT_BIT_EFFICIENCY if dtype == "int8" or dtype.startswith("float8") else share


class Roofline:
    """Seconds that operations take on one profile."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        rates = dict(profile.tflops)
        rates["float64"] = rates["float32"] * FLOAT64_SHARE.get(profile.compute_capability, 1 / 64)
        chip = profile.compute_capability
        self._seconds_per_flop = {
            dtype: 1 / (rate * 1e12 * compute_efficiency(chip, dtype)) for dtype, rate in rates.items()
        }
        self._fallback = self._seconds_per_flop["float32"]
        self._seconds_per_byte = 1 / (profile.memory_gb_s * 1e9 * MEMORY_EFFICIENCY)

    def operation_seconds(self, flop: int, nbytes: int, dtype: str = "float32") -> float:
        """Seconds of one operation; a dtype that the chip has no unit for runs at float32's rate (so does tf32 before
        Ampere)."""
        compute = flop * self._seconds_per_flop.get(dtype, self._fallback)
        memory = nbytes * self._seconds_per_byte
        return (compute if compute > memory else memory) + LAUNCH_SECONDS

    def copy_seconds(self, other: Profile | None, nbytes: int) -> float:
        """Seconds of a copy between this card and one of another profile, or the host (None)."""
        return transfer_seconds(self.profile, other, nbytes)


def transfer_seconds(source: Profile | None, destination: Profile | None, nbytes: int) -> float:
    """Seconds of a copy between two cards, over the slower of their peer links; None is the host: then over the card's
    host link."""
    if source is not None and destination is not None:
        link_gb_s = min(source.link_gb_s, destination.link_gb_s)
    else:
        card = source or destination
        if card is None:
            return 0.0
        link_gb_s = card.host_gb_s
    return nbytes / (link_gb_s * 1e9 * LINK_EFFICIENCY) + COPY_SECONDS


class _Share(threading.local):
    seconds = 0.0


class SimulatedClock:
    """Two totals of one virtual GPU: simulated busy seconds, and real CPU seconds spent on the simulation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.busy_seconds = 0.0
        """Simulated seconds during which the card was busy."""
        self.cpu_seconds = 0.0
        """Real seconds that the CPU spent computing."""
        self._share = _Share()

    def advance(self, seconds: float, cpu_seconds: float = 0.0) -> None:
        """Add work of the calling thread: `seconds` of the card, `cpu_seconds` of wall time on the CPU."""
        self._share.seconds += seconds
        with self._lock:
            self.busy_seconds += seconds
            self.cpu_seconds += cpu_seconds

    @property
    def thread_seconds(self) -> float:
        """The part of `busy_seconds` caused by the calling thread."""
        return self._share.seconds
