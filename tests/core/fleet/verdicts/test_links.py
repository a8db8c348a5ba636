"""Whether it is a member or a link that slows down pairs: every slow one is found, and no other is named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from devexplorer.core.fleet.verdicts.causes import slow_in_pairs

Pair = tuple[int, int]


def found(
    count: int, cards: Sequence[int] = (), links: Sequence[Pair] = (), *, fails: bool = False
) -> tuple[object, ...]:
    """Of neighbours in a ring."""

    def rate(pair: Pair) -> float:
        return 50.0 if set(pair) & set(cards) or pair in links else 100.0

    def measure(pairs: Sequence[Pair]) -> list[float | None]:
        members = [member for pair in pairs for member in pair]
        assert len(members) == len(set(members)), "pairs of a round overlap"
        return [None if fails else rate(pair) for pair in pairs]

    ring = [(member, (member + 1) % count) for member in range(count)]
    return slow_in_pairs({pair: rate(pair) for pair in ring}, measure)


@pytest.mark.parametrize("count", [3, 4, 5, 16])
def test_every_single_fault_is_found(count: int) -> None:
    assert found(count) == ((), ())
    for one in range(count):
        assert found(count, [one]) == ((one,), ())
        assert found(count, links=[(one, (one + 1) % count)]) == ((), ((one, (one + 1) % count),))


def test_several_faults() -> None:
    assert found(16, [2, 4, 5]) == ((2, 4, 5), ())  # 3 is slow with both of its neighbours, and not with another one
    assert found(16, [2], [(9, 10)]) == ((2,), ((9, 10),))
    assert found(16, links=[(3, 4), (4, 5)]) == ((), ((3, 4), (4, 5)))


def test_where_nothing_can_be_known_nothing_is_said() -> None:
    assert found(2, [0]) == ((), ())
    assert found(8, [5], fails=True) == ((), ())
