"""Faults that a simulated fleet is told to have: `slow:3/5:10%`. Pure functions, any thread."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from devexplorer.core.base import BadInput, list_text

DefectKind = Literal["slow", "hot", "pcie", "link", "lost"]


class Defect(NamedTuple):
    """One fault of one card."""

    kind: DefectKind
    node: int
    card: int
    share: float
    """Of its rate that is missing: of products and memory (`slow`, `hot`), of copies to and from the host (`pcie`), of
    copies between cards (`link`); 1 for a card that is `lost`."""


_DEFAULT: dict[DefectKind, float] = {"slow": 0.10, "hot": 0.20, "pcie": 0.75, "link": 0.50, "lost": 1.0}
"""10 % slower; a fifth less for heat; 4 of 16 lanes; half of the links."""
_FORM = re.compile(r"(\w+):(\d{1,6})/(\d{1,3})(?::(\d{1,2}(?:\.\d+)?)\s*%)?", re.ASCII)


def parse_defect(text: str) -> Defect:
    """Return what `KIND:NODE/CARD[:SHARE%]` means; nodes and cards count from 0. Raises `BadInput`.

    >>> parse_defect("slow:3/5:10%")
    Defect(kind='slow', node=3, card=5, share=0.1)
    """
    match = _FORM.fullmatch(text.strip())
    kind = next((kind for kind in _DEFAULT if match is not None and match[1] == kind), None)
    if match is None or kind is None:
        raise BadInput(
            f"--defect '{text}' is not a defect; write KIND:NODE/CARD:SHARE, for example slow:3/5:10%"
            f" (kinds: {list_text(list(_DEFAULT))})"
        )
    share = _DEFAULT[kind] if match[4] is None else float(match[4]) / 100
    if match[4] is not None and kind == "lost":
        raise BadInput(f"--defect '{text}': a lost card has no share; write lost:{match[2]}/{match[3]}")
    if share <= 0:
        raise BadInput(f"--defect '{text}' changes nothing; write a share above 0 %")
    return Defect(kind, int(match[2]), int(match[3]), share)
