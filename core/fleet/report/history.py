"""What is kept of a check, and what earlier ones say of the cards of the next. Pure functions, any thread.

Only checks that were made alike are compared: a card that has been soaked is slower, and so is one whose neighbours
work. Simulated cards are compared with those of the same simulated fleet alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from devexplorer.core.fleet.check.fleet_check import CheckReport, Former
from devexplorer.core.fleet.check.plan import CheckPlan
from devexplorer.core.fleet.events import CardKey, FleetSource
from devexplorer.core.fleet.records import CardMedian, MeasuredKind, StoredCheck, Verdict
from devexplorer.core.fleet.report.document import median_rate, named
from devexplorer.core.fleet.simulated import SimulatedFleet
from devexplorer.core.fleet.table import FleetCard
from devexplorer.core.history.store import SideRow
from devexplorer.core.records import DeviceInfo

TABLE = "fleet_checks"
"""Of checks, in the file of the history."""
MOST_FORMER = 20
"""Earlier medians of a card that are of use; older ones say little of it now."""


def fleet_name(source: FleetSource) -> str:
    """Which simulated fleet this is; empty for real machines."""
    return source.name if isinstance(source, SimulatedFleet) else ""


def kept(report: CheckReport, fleet: str = "") -> StoredCheck:
    """What of it goes into the history."""
    medians = tuple(
        CardMedian(
            machine=card.machine,
            device=card.device,
            name=card.name,
            kind=rates.kind,
            dtype=rates.dtype,
            median=median,
            uuid=info.uuid,
            simulated=card.simulated,
        )
        for card, info in zip(report.measurements, report.devices, strict=True)
        for rates in card.rates
        if not rates.failure and not rates.wrong_values and (median := median_rate(rates)) is not None
    )
    return StoredCheck(
        started_unix_s=report.started_unix_s,
        ended_unix_s=report.ended_unix_s,
        medians=medians,
        simulated=all(card.simulated for card in report.measurements),
        fleet=fleet,
        in_turn=report.plan.in_turn,
        soaked=report.plan.soak_s > 0,
        cards=len(report.measurements),
        slow=tuple(named(report, Verdict.SLOW)),
        failed=tuple(named(report, Verdict.FAILED)),
    )


def as_row(check: StoredCheck) -> SideRow:
    """As the history keeps it, in its table `TABLE`."""
    record = msgspec.json.encode(msgspec.structs.replace(check, id=0)).decode()
    return SideRow(check.started_unix_s, check.simulated, record)


def stored_checks(rows: Iterable[SideRow]) -> list[StoredCheck]:
    """Checks that the history keeps, in the same order; those that this version cannot read are left out."""
    found = []
    for row in rows:
        try:
            found.append(msgspec.structs.replace(msgspec.json.decode(row.record, type=StoredCheck), id=row.id))
        except (msgspec.MsgspecError, TypeError, ValueError):  # by a newer version, or edited by hand
            continue
    return found


def former(checks: Iterable[StoredCheck], cards: Sequence[FleetCard], plan: CheckPlan, fleet: str = "") -> Former:
    """What earlier checks, oldest first, say of these cards: by UUID, where a card has none by machine and device."""
    by_uuid = {card.info.uuid: card for card in cards if card.info.uuid is not None}
    by_place = {(card.machine, card.info.id): card for card in cards}
    found: defaultdict[tuple[CardKey, MeasuredKind, str], list[float]] = defaultdict(list)
    for check in checks:
        if check.in_turn != plan.in_turn:
            continue
        for median in check.medians:
            if median.kind is MeasuredKind.MATMUL and check.soaked != (plan.soak_s > 0):
                continue
            place = median.machine, median.device
            card = by_place.get(place) if median.uuid is None else by_uuid.get(median.uuid)
            if card is not None and _is(card.info, median) and (not median.simulated or check.fleet == fleet):
                found[(card.machine, card.info.id), median.kind, median.dtype].append(median.median)
    return {key: tuple(medians[-MOST_FORMER:]) for key, medians in found.items()}


def _is(info: DeviceInfo, median: CardMedian) -> bool:
    return (info.name, info.simulated) == (median.name, median.simulated) and median.uuid in (None, info.uuid)
