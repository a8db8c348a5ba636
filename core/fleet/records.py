"""Many cards side by side: what was measured of each, which of them is slow, and what is kept of a check. Plain frozen
records, made on any thread."""

from __future__ import annotations

import enum

import msgspec

from devexplorer.core.records.base import Record


class MeasuredKind(enum.Enum):
    """What a rate was measured with."""

    MATMUL = "matmul"
    MEMORY = "memory"
    MODEL = "model"
    COPIES = "copies"
    """Between host and card."""
    PEER = "peer"
    """Between cards of one machine."""
    ALLREDUCE = "allreduce"


class Rates(Record, omit_defaults=True):
    """One kind of measurement on one card: block by block, in the order of measurement."""

    kind: MeasuredKind
    dtype: str = ""
    """As torch writes it; empty where it means nothing."""
    blocks: tuple[float, ...] = ()
    """Higher is better; in any unit that is the same for all cards."""
    block_s: float | None = None
    wrong_values: bool = False
    """What was computed or copied was compared, and differed."""
    failure: str | None = None
    """Why it could not be measured."""
    former: tuple[float, ...] = ()
    """Medians of this card's former runs, oldest first."""


class LoadReadings(Record, omit_defaults=True):
    """What was read of a card while it was measured: medians, where nothing else is noted. None: not known."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    throttled: dict[str, float] | None = None
    """Throttle reason, as in `DeviceSample` -> share of the readings that had it."""
    ecc_corrected: int | None = None
    """Errors meanwhile."""
    ecc_uncorrected: int | None = None
    remapping_pending: bool | None = None
    """Rows of memory wait for a reset to be replaced, or pages for a reboot to be taken out of use."""
    pcie_generation: int | None = None
    """The highest that was seen: cards lower it when idle."""
    pcie_width: int | None = None
    """The most lanes that were seen."""
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    """Packets sent again meanwhile."""
    other_processes: int | None = None
    """Processes of others that used the card."""
    other_utilization_percent: float | None = None
    """Their kernels' share of the time, together."""
    near_memory: bool | None = None
    """Not read by this version; a field of its documents."""


class CardMeasurement(Record, omit_defaults=True):
    """One card of one machine."""

    machine: str
    device: str
    name: str
    memory_total_bytes: int | None = None
    power_limit_default_w: float | None = None
    """By design, not what is set: cards of another class are no equals, a card that was turned down is."""
    rates: tuple[Rates, ...] = ()
    readings: LoadReadings | None = None
    lost: bool = False
    """It stopped answering."""
    simulated: bool = False


class Verdict(enum.Enum):
    """What can be said of a card."""

    NORMAL = "normal"
    SLOW = "slow"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Basis(enum.Enum):
    """What a card was compared with."""

    EQUAL_CARDS = "equal cards"
    OWN_HISTORY = "own history"


class WhyUnknown(enum.Enum):
    """Why nothing can be said, or why a card failed."""

    LOST = "lost"
    NOT_MEASURED = "not measured"
    WRONG_VALUES = "wrong values"
    TOO_FEW_EQUAL = "too few equal cards"
    ABSURD = "absurd rate"
    """Faster than any card of its kind: the measurement is wrong."""
    NOISY = "noisy"
    """Its blocks vary so much that a card this slow could not be told."""


class CauseId(enum.Enum):
    """The likely cause of a slow card."""

    THERMAL = "thermal"
    POWER_CAP = "power cap"
    POWER_SUPPLY = "power supply"
    CLOCKS_SET = "clocks set lower"
    ECC = "ECC errors"
    OTHER_PROCESS = "other process"
    PCIE_WIDTH = "PCIe width"
    PCIE_GENERATION = "PCIe generation"
    LINK = "link"
    CARD = "card"
    """Nothing else explains it: the chip itself."""


class Cause(Record, omit_defaults=True):
    """What speaks for one cause."""

    cause: CauseId
    strength: float
    """0 to 1: how clearly the readings differ from those of equal cards."""
    value: float | None = None
    """The reading of this card: °C, W, lanes, generation, MHz, errors, per cent."""
    usual: float | None = None
    """The median of equal cards that are not slow."""


class RateComparison(Record, omit_defaults=True):
    """One score of one card."""

    kind: MeasuredKind
    basis: Basis
    ratio: float
    """To the median of equal cards, or of its own history."""
    slow: bool
    slow_below: float
    """The ratio from which on it would be called slow."""
    dtype: str = ""
    others: int = 0
    """Cards, or former runs, that it was compared with."""


class CardVerdict(Record, omit_defaults=True):
    """The verdict on one card."""

    machine: str
    device: str
    name: str
    verdict: Verdict
    why: WhyUnknown | None = None
    """Set where the verdict is `unknown` or `failed`."""
    worst: RateComparison | None = None
    """The one that decides: the least ratio to its threshold."""
    comparisons: tuple[RateComparison, ...] = ()
    causes: tuple[Cause, ...] = ()
    """Of a slow card, likeliest first."""
    simulated: bool = False

    @property
    def ratio(self) -> float | None:
        """To what decided."""
        return None if self.worst is None else self.worst.ratio

    @property
    def cause(self) -> CauseId | None:
        """The likeliest."""
        return self.causes[0].cause if self.causes else None


class GroupCase(enum.Enum):
    """What is peculiar about a group of equal cards."""

    TWO_SPEEDS = "two speeds"
    """A quarter or more are slow alike: rather a setting, a rack or a supply than each card."""
    ALL_CHANGED = "all changed"
    """The group as a whole is slower than it was."""
    TOO_FEW = "too few"
    UNCERTAIN = "uncertain figures"
    """A card that is a tenth slower could not be told, because each card's own figure is too uncertain."""
    DIFFER = "healthy cards differ"
    """It could not be told, because healthy cards differ too much."""
    FEW = "few equal cards"
    """It could not be told, because so few cards know little of their spread."""


class GroupFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a group of equal cards says together, where there is something to say."""

    name: str
    kind: MeasuredKind
    dtype: str
    case: GroupCase
    cards: int
    concerned: int
    """Cards that are slower, have changed, or cannot be compared."""
    ratio: float | None = None
    """The slower cards to the faster, or now to before; of what could not be told: what would be called slow."""
    share: float | None = None
    """How uncertain one card's own figure is, or by how much healthy cards differ."""
    seconds: float | None = None
    """That each measurement should take for a card that is a tenth slower to be told."""


class FleetVerdict(Record, omit_defaults=True):
    """The verdict on all cards of a check."""

    cards: tuple[CardVerdict, ...]
    groups: tuple[GroupFinding, ...] = ()
    comparisons: int = 0
    """How many were made: the false-alarm rate is shared by them."""
    family_wise: float = 0.0
    """Chance that any healthy card of a fleet like this is called slow, as computed."""

    @property
    def slow(self) -> tuple[CardVerdict, ...]:
        """In the order of the cards."""
        return tuple(card for card in self.cards if card.verdict is Verdict.SLOW)

    @property
    def failed(self) -> tuple[CardVerdict, ...]:
        """Those that are lost, compute wrong values, or cannot do what equal cards can."""
        return tuple(card for card in self.cards if card.verdict is Verdict.FAILED)


class CardMedian(Record, omit_defaults=True):
    """What one card reached in one kind of measurement."""

    machine: str
    device: str
    name: str
    kind: MeasuredKind
    median: float
    """Of its blocks: TFLOP/s of products, samples/s of models, decimal GB/s of everything else."""
    dtype: str = ""
    uuid: str | None = None
    simulated: bool = False


class StoredCheck(Record, omit_defaults=True):
    """One check of a fleet in the history."""

    started_unix_s: float
    ended_unix_s: float
    medians: tuple[CardMedian, ...]
    id: int = 0
    """0: it is not stored yet."""
    simulated: bool = False
    """All of its cards are."""
    fleet: str = ""
    """Which simulated fleet it was; cards of two of them have nothing in common but their names."""
    in_turn: bool = False
    soaked: bool = False
    """Products ran for a while before they were measured."""
    cards: int = 0
    slow: tuple[str, ...] = ()
    """`MACHINE/DEVICE` of each slow card."""
    failed: tuple[str, ...] = ()
