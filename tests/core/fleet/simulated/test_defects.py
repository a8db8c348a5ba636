"""Defects as people write them."""

from __future__ import annotations

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.fleet.simulated import Defect, parse_defect


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("slow:3/5:10%", Defect("slow", 3, 5, 0.1)),
        (" hot:0/0 ", Defect("hot", 0, 0, 0.2)),
        ("pcie:12/7:50.5%", Defect("pcie", 12, 7, 0.505)),
        ("lost:1/2", Defect("lost", 1, 2, 1.0)),
    ],
)
def test_a_defect_is_a_kind_a_card_and_a_share(text: str, meant: Defect) -> None:
    assert parse_defect(text) == meant


@pytest.mark.parametrize(
    "text",
    ["", "slow", "slow:3", "slow:3/5:10", "broken:1/1", "slow:3/5:100%", "slow:-1/0", "slow:1/1:0%", "lost:1/1:5%"],
)
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(BadInput, match=r"write|:1/1"):
        parse_defect(text)
