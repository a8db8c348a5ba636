"""How long a real card would take: a roofline over the profile with fitted parameters, and the simulated clock that
adds it up. No torch; any thread.

    seconds of a kernel = `terms`: compute, memory and layout at the datasheet's rates, changed by fitted parameters
    seconds of a step   = `overlapped`: the card works while the host launches what comes next
    seconds of a copy   = bytes / (slower link · LINK) + COPY

The parameters are in `resources/cost_model.csv`, each with its prior, source and uncertainty; docs/planner.md says how
they were fitted to published steps and products, and how far the model is off on rows that it has not seen. The own
factors of a calibrated card (`Profile.calibration`) change them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from functools import cache

from devexplorer.core.devices.profiles import Profile, resource_rows
from devexplorer.core.virtual.device.calibration import LINK, scaled
from devexplorer.core.virtual.device.terms import Term, terms
from devexplorer.core.virtual.device.work import Call, Work

KNEE = 4
"""How round the knee of the roofline is, and that between a host-bound and a device-bound step: sums of this power. An
assumption: at equal parts it takes 1.19 times as long as either."""

SPREAD, HOST_SPREAD = 0.22, 0.7
"""Of the logarithm of a step's seconds: for a step that the card bounds, and what the host's part adds. Chosen so that
the range holds at least 85 % of the published steps, each predicted without its model, and without its card
(docs/planner.md)."""

LINK_EFFICIENCY = 12.36 / 15.75
"""Share of a link's rate that a large copy reaches: the sample output in nvbandwidth's README, 12.36 GB/s, taken to be
PCIe 3 x16."""

NETWORK_GB_S = 50.0
"""Each card's share of the network between machines, one direction: 400 Gbit/s, as the eight ConnectX-7 of a DGX H100
have it for its eight cards (NVIDIA's datasheet). An assumption wherever machines are simulated."""

PAGEABLE_BYTES_S = 2.3e9
"""Bytes a second that reach a card from pageable memory, beside the workers of a data loader: fitted to the published
steps that copy their input (tests/benchmarks/fit_cost_model.py)."""

COPY_SECONDS = 6e-6
"""What each copy costs beyond its bytes: "approximately 5-7 µs" for cudaMemcpyAsync (DualPath, arXiv 2602.21548,
section 5.2)."""


@cache
def cost_parameters() -> Mapping[str, float]:
    """The fitted parameters by name: shares and factors as they are, times in seconds."""
    return {row["parameter"]: float(row["value"]) for row in resource_rows("cost_model.csv")}


def parameters_of(profile: Profile) -> Mapping[str, float]:
    """Of a card: the fitted ones, changed by its own factors where it was calibrated."""
    fitted = cost_parameters()
    return fitted if profile.calibration is None else scaled(fitted, profile.calibration.values)


def launch_seconds() -> float:
    """What an operation keeps the host busy for, called from Python."""
    return cost_parameters()[Call.FORWARD]


def overlapped(device_seconds: float, host_seconds: float) -> float:
    """Seconds of a step whose kernels take so long on the card and their launches on the host: they overlap, so that
    the slower of the two bounds it."""
    return float(math.hypot(device_seconds**2, host_seconds**2) ** (2 / KNEE))


class Roofline:
    """Seconds that kernels take on one profile."""

    def __init__(self, profile: Profile, parameters: Mapping[str, float] | None = None) -> None:
        """`parameters`: others than the card's."""
        self.profile = profile
        self._parameters = parameters_of(profile) if parameters is None else parameters
        self._known: dict[Work, float] = {}

    def seconds(self, *works: Work) -> float:
        """Of kernels one after the other."""
        known, total = self._known, 0.0
        for work in works:
            spent = known.get(work)
            if spent is None:
                spent = known[work] = self._kernel(work)
            total += spent
        return total

    def _kernel(self, work: Work) -> float:
        compute, memory, layout = self.bounds(work)
        if not memory and not compute:
            return 0.0
        return float(math.hypot(compute**2, memory**2) ** (2 / KNEE)) + layout + self._parameters["kernel"]

    def bounds(self, work: Work) -> tuple[float, float, float]:
        """Seconds that a kernel would take if it only computed, only read and wrote, and only rearranged."""
        compute, memory, layout = (self._term(term) for term in terms(work, self.profile))
        return compute, memory, layout

    def _term(self, term: Term | None) -> float:
        if term is None:
            return 0.0
        known = self._parameters
        return float(term.seconds * math.prod(known.get(name, 1.0) ** power for name, power in term.parameters.items()))

    def operation_seconds(self, flop: int, nbytes: int, dtype: str = "float32") -> float:
        """Of a kernel of which nothing else is known."""
        return self.seconds(Work(flop=flop, nbytes=nbytes, dtype=dtype))

    def call_seconds(self, call: Call) -> float:
        """What a call keeps the host busy for."""
        return self._parameters[call]

    def copy_seconds(self, other: Profile | None, nbytes: int) -> float:
        """Seconds of a copy between this card and one of another profile, or the host (None)."""
        return transfer_seconds(self.profile, other, nbytes)


def spread(device_seconds: float, host_seconds: float) -> float:
    """The factor by which a step may take longer or shorter than it is predicted to.

    Wider where the host bounds the step: the processor, and how a loop is written, are not known.
    """
    share = host_seconds / (device_seconds + host_seconds) if host_seconds else 0.0
    return math.exp(math.hypot(SPREAD, HOST_SPREAD * share))


def host_seconds(calls: Iterable[tuple[Call, int]], profile: Profile | None = None) -> float:
    """What so many calls keep the host of a card busy for; None: an average host."""
    parameters = cost_parameters() if profile is None else parameters_of(profile)
    return sum(parameters[call] * times for call, times in calls)


def transfer_seconds(source: Profile | None, destination: Profile | None, nbytes: int) -> float:
    """Seconds of a copy between two cards, over the slower of their peer links; None is the host: then over the card's
    host link."""
    share = LINK_EFFICIENCY
    if source is not None and destination is not None:
        link_gb_s = min(source.link_gb_s, destination.link_gb_s)
    else:
        card = source or destination
        if card is None:
            return 0.0
        link_gb_s = card.host_gb_s
        share *= 1.0 if card.calibration is None else card.calibration.values.get(LINK, 1.0)
    return nbytes / (link_gb_s * 1e9 * share) + COPY_SECONDS


class _Thread(threading.local):
    device_seconds = 0.0
    host_seconds = 0.0


class SimulatedClock:
    """Totals of one virtual GPU: simulated busy seconds, and real CPU seconds spent on the simulation; of each thread
    also what its launches would have kept the host busy for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.busy_seconds = 0.0
        """Simulated seconds during which the card was busy."""
        self.cpu_seconds = 0.0
        """Real seconds that the CPU spent computing."""
        self._thread = _Thread()

    def advance(self, seconds: float, cpu_seconds: float = 0.0) -> None:
        """Add work of the calling thread: `seconds` of the card, `cpu_seconds` of wall time on the CPU."""
        self._thread.device_seconds += seconds
        with self._lock:
            self.busy_seconds += seconds
            self.cpu_seconds += cpu_seconds

    def call(self, seconds: float) -> None:
        """Add what the calling thread's launches would have kept the host busy for."""
        self._thread.host_seconds += seconds

    @property
    def thread_seconds(self) -> float:
        """The part of `busy_seconds` caused by the calling thread."""
        return self._thread.device_seconds

    @property
    def thread_host_seconds(self) -> float:
        """The calling thread's launches."""
        return self._thread.host_seconds
