"""The alert rules of the window over all cards of a fleet, one step for each rule. Main thread only.

Seconds, thresholds and what counts as throttled are those of `core.alerts.judging`; a share of the last seconds is
that of the last looks, of which there is one a second. A card's own temperature limits are not known here, so that a
rule that leaves the threshold to the card uses the one for cards that do not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.alerts.judging import REASON_WORDS
from devexplorer.core.alerts.rules import (
    ALARM,
    LOST,
    MEMORY_PERCENT,
    NEW_ECC_ERRORS,
    POWER_CAPPED,
    QUANTITIES,
    SHARE_WINDOW_S,
    THROTTLED,
    Rule,
    figure_text,
    limits,
)
from devexplorer.core.fleet.table import COLUMNS, FleetCard, FleetTable

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LOOKS = round(SHARE_WINDOW_S)
_SHARES = (THROTTLED, POWER_CAPPED)
_SPECIAL = (LOST, MEMORY_PERCENT, NEW_ECC_ERRORS, *_SHARES)


class Raised(NamedTuple):
    """An alert of one card."""

    row: int
    metric: str
    value: float

    @property
    def level(self) -> str:
        """`alarm` or `notice`, which is only listed."""
        return QUANTITIES[self.metric].level

    @property
    def is_alarm(self) -> bool:
        """Whether it is one."""
        return self.level == ALARM

    @property
    def text(self) -> str:
        """What it is, with its figure."""
        quantity = QUANTITIES[self.metric]
        figure = "" if quantity.fixed else f" {figure_text(self.value, quantity.unit)}"
        return f"{quantity.label}{figure}"


class FleetAlerts:
    """`look` about once a second."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules: tuple[Rule, ...] = ()
        self.left_out: tuple[str, ...] = ()
        """Names of the readings of rules that a fleet does not keep."""
        self.alarms: Bools = np.zeros(0, bool)
        """Whether any alarm is raised, by card."""
        self._cards: list[FleetCard] = []
        self._structure = -1
        self._raised: Bools = np.zeros((0, 0), bool)
        self._since: Floats = np.empty((0, 0))
        """When the condition began that changes a state; NaN: there is none."""
        self._values: Floats = np.empty((0, 0))
        self._errors: Floats = np.empty(0)
        """Uncorrected errors when each card was first read."""
        self._shares: dict[str, Bools] = {}
        """Of the last looks, by card."""
        self._known: Bools = np.zeros((0, 0), bool)
        self._looks = 0
        self.set_rules(rules)

    def set_rules(self, rules: Sequence[Rule]) -> None:
        """From now on these; what was raised by others is forgotten."""
        enabled = [rule for rule in rules if rule.enabled]
        self.rules = tuple(rule for rule in enabled if rule.metric in COLUMNS or rule.metric in _SPECIAL)
        self.left_out = tuple(QUANTITIES[rule.metric].label for rule in enabled if rule not in self.rules)
        self._structure = -1
        self._cards = []

    def look(self, fleet: FleetTable, now: float) -> None:
        """Raise and clear, by what is known now."""
        if fleet.structure != self._structure:
            self._follow(fleet)
        self._looks += 1
        for number, rule in enumerate(self.rules):
            values = self._values[number] = self._quantity(fleet, rule.metric)
            limit = limits(rule)
            with np.errstate(invalid="ignore"):
                past = values <= limit.raise_at if limit.below else values >= limit.raise_at
                calm = values >= limit.clear_at if limit.below else values <= limit.clear_at
            if limit.raise_at == limit.clear_at:
                calm &= ~past
            raised, since = self._raised[number], self._since[number]
            changing = np.where(raised, calm, past)
            since[:] = np.where(changing, np.where(np.isnan(since), now, since), np.nan)
            turns = changing & (now - since >= rule.seconds)
            if rule.devices:
                turns &= np.array([rule.is_about(card.info.id) for card in fleet.cards], bool)
            raised ^= turns
            since[turns] = np.nan
        serious = np.array([QUANTITIES[rule.metric].level == ALARM for rule in self.rules], bool)
        self.alarms = np.any(self._raised[serious], axis=0, keepdims=True)[0]

    @property
    def raised(self) -> list[Raised]:
        """Everything that is raised, by card."""
        numbers, rows = np.nonzero(self._raised)
        order = np.argsort(rows, kind="stable")
        return [
            Raised(int(rows[at]), self.rules[numbers[at]].metric, float(self._values[numbers[at], rows[at]]))
            for at in order
        ]

    def of(self, row: int) -> list[Raised]:
        """What is raised of one card."""
        if row >= self._raised.shape[1]:
            return []
        return [
            Raised(row, self.rules[number].metric, float(self._values[number, row]))
            for number in np.flatnonzero(self._raised[:, row])
        ]

    def _follow(self, fleet: FleetTable) -> None:
        """Cards have come or gone; one that stays keeps its alerts."""
        before = {(card.machine, card.info.id): row for row, card in enumerate(self._cards)}
        old = np.array([before.get((card.machine, card.info.id), -1) for card in fleet.cards], dtype=np.intp)
        stays = old >= 0

        def moved(values: npt.NDArray[np.generic], empty: float, shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
            result = np.full((*shape, len(old)), empty, values.dtype)
            if stays.any():
                result[..., stays] = values[..., old[stays]]
            return result

        rules = (len(self.rules),)
        self._raised = moved(self._raised, False, rules)  # type: ignore[assignment]
        self._since = moved(self._since, np.nan, rules)  # type: ignore[assignment]
        self._values = np.full((*rules, len(old)), np.nan)
        self._errors = moved(self._errors, np.nan, ())  # type: ignore[assignment]
        for metric in _SHARES:
            kept = self._shares.get(metric, np.zeros((LOOKS, 0), bool))
            self._shares[metric] = moved(kept, False, (LOOKS,))  # type: ignore[assignment]
        self._known = moved(self._known, False, (LOOKS,))  # type: ignore[assignment]
        self._cards, self._structure = list(fleet.cards), fleet.structure

    def _quantity(self, fleet: FleetTable, metric: str) -> Floats:
        if metric == LOST:
            return self._lost(fleet)
        if metric == MEMORY_PERCENT:
            return 100 * fleet.column("memory_used_bytes") / fleet.column("memory_total_bytes")
        if metric == NEW_ECC_ERRORS:
            errors = fleet.column("ecc_uncorrected")
            self._errors = np.where(np.isnan(self._errors), errors, np.fmin(self._errors, errors))
            return errors - self._errors
        if metric in _SHARES:
            return self._share(fleet, metric)
        return fleet.column(metric)

    def _share(self, fleet: FleetTable, metric: str) -> Floats:
        words = REASON_WORDS[metric]
        counts = [any(word in reason.lower() for reason in reasons for word in words) for reasons in fleet.reasons]
        codes, at = fleet.reason_codes, self._looks % LOOKS
        self._known[at] = codes >= 0
        self._shares[metric][at] = np.array(counts)[codes] & self._known[at]
        known = self._known.sum(axis=0)
        with np.errstate(invalid="ignore"):
            share: Floats = np.where(known > 0, 100 * self._shares[metric].sum(axis=0) / np.maximum(known, 1), np.nan)
        return share

    def _lost(self, fleet: FleetTable) -> Floats:
        lost = np.zeros(len(fleet.cards))
        away = {name for name, machine in fleet.machines.items() if machine.state == "lost"}
        if away:
            lost[[row for row, card in enumerate(fleet.cards) if card.machine in away]] = 1
        for machine, problems in fleet.problems.items():
            for problem in problems:
                whole = problem.device is not None and problem.field is None
                row = fleet.row(machine, problem.device or "") if whole else None
                if row is not None and fleet.cards[row].info.kind != "cpu":
                    lost[row] = 1
        return lost
