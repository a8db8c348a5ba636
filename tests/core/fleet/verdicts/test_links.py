"""Card or link: found with few measurements that do not overlap within a round."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest

from devexplorer.core.fleet.verdicts.causes import FoundLinks, Group, find_slow, from_pairs

EXPECTED = 100.0


class Fabric:
    """Rates of groups with these faults; every group is as slow as its slowest member or link."""

    def __init__(self, cards: set[str], links: set[frozenset[str]], factor: float = 0.5) -> None:
        self.cards, self.links, self.factor = cards, links, factor
        self.asked: list[Sequence[Group]] = []

    def __call__(self, groups: Sequence[Group]) -> list[float]:
        members = list(itertools.chain.from_iterable(groups))
        assert len(members) == len(set(members)), "groups of a round overlap"
        self.asked.append(groups)
        return [EXPECTED * (self.factor if self.slow(group) else 1.0) for group in groups]

    def slow(self, group: Group) -> bool:
        return bool(self.cards & set(group)) or any(link <= set(group) for link in self.links)


def names(count: int) -> list[str]:
    return [f"n{index}" for index in range(count)]


def search(count: int, cards: Sequence[int] = (), links: Sequence[tuple[int, int]] = ()) -> FoundLinks:
    members = names(count)
    fabric = Fabric({members[one] for one in cards}, {frozenset(members[one] for one in link) for link in links})
    return find_slow(members, EXPECTED, fabric)


def test_a_fleet_without_a_fault_takes_one_measurement() -> None:
    assert search(64) == FoundLinks((), (), (), 1, 1)


@pytest.mark.parametrize("count", [3, 4, 5, 7, 8, 16, 33, 64])
def test_every_single_slow_card_is_found(count: int) -> None:
    for slow in range(count):
        found = search(count, [slow])
        assert (found.cards, found.links, found.unclear) == ((f"n{slow}",), (), ())
        assert found.rounds <= 2 * math.ceil(math.log2(count)) + 4


@pytest.mark.parametrize("count", [4, 5, 8, 13])
def test_every_single_slow_link_is_found(count: int) -> None:
    for link in itertools.combinations(range(count), 2):
        found = search(count, links=[link])
        assert [set(one) for one in found.links] == [{f"n{link[0]}", f"n{link[1]}"}]
        assert found.cards == ()


def test_few_measurements() -> None:
    assert max(search(64, [slow]).measurements for slow in range(64)) <= 16
    links = [search(64, links=[link]) for link in itertools.combinations(range(0, 64, 5), 2)]
    assert max(found.rounds for found in links) <= 20
    assert max(found.measurements for found in links) <= 32  # of 2,016 pairs


@pytest.mark.parametrize("pair", [(0, 1), (0, 9), (3, 15), (7, 8)])
def test_two_slow_cards_are_both_found(pair: tuple[int, int]) -> None:
    found = search(16, pair)
    assert set(found.cards) == {f"n{one}" for one in pair}
    assert found.links == ()


def test_a_slow_card_and_a_slow_link_elsewhere() -> None:
    found = search(16, [2], [(9, 14)])
    assert found.cards == ("n2",)
    assert [set(one) for one in found.links] == [{"n9", "n14"}]


def test_of_two_members_nothing_more_can_be_said() -> None:
    assert search(2, [0]) == FoundLinks((), (), (("n0", "n1"),), 1, 1)


def test_a_group_that_fails_is_slow() -> None:
    members = names(8)
    fabric = Fabric({"n5"}, set(), factor=math.nan)
    assert find_slow(members, EXPECTED, fabric).cards == ("n5",)


def test_a_fault_that_comes_and_goes_is_not_guessed() -> None:
    rates = iter([50.0])
    found = find_slow(names(8), EXPECTED, lambda groups: [next(rates, EXPECTED) for _ in groups])
    assert found.cards == found.links == ()
    assert found.unclear == (tuple(names(8)),)


def test_from_all_pairs() -> None:
    members = names(6)
    fabric = Fabric({"n2"}, {frozenset({"n4", "n5"})})
    rates = {pair: fabric([pair])[0] for pair in itertools.combinations(members, 2)}
    found = from_pairs(rates)
    assert found.cards == ("n2",)
    assert found.links == (("n4", "n5"),)


def test_from_pairs_that_all_failed() -> None:
    assert from_pairs({("a", "b"): math.nan}).unclear == (("a", "b"),)


def test_a_lost_link_is_a_slow_link() -> None:
    rates = dict.fromkeys(itertools.combinations(names(4), 2), 100.0)
    rates["n0", "n3"] = 0.0
    assert from_pairs(rates).links == (("n0", "n3"),)
