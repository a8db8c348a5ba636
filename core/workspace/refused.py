"""A refusal that brings its own facts and ways out. No thread of its own."""

from __future__ import annotations

from devexplorer.core.base.errors import BadInput
from devexplorer.core.records.messages import Fact, Offer


class Refused(BadInput):
    """As `BadInput`; `core.commands.refusals` shows the facts and offers the ways out."""

    def __init__(self, *findings: str, facts: tuple[Fact, ...] = (), offers: tuple[Offer, ...] = ()) -> None:
        super().__init__(*findings)
        self.facts, self.offers = facts, offers
