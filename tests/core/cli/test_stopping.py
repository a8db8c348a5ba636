"""A request to stop is noticed between two steps; a second one, of either kind, ends the program the usual way."""

from __future__ import annotations

import os
import signal

import pytest

from devexplorer.core.cli.stopping import Stopping

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_of_another_kind_is_no_request_any_more(first: signal.Signals) -> None:
    heard: list[int] = []
    usual = {
        number: signal.signal(number, lambda number, _frame: heard.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    second = signal.SIGTERM if first is signal.SIGINT else signal.SIGINT
    try:
        with Stopping() as stopping:
            signal.raise_signal(first)
            assert stopping.asked
            assert stopping.exit_code == 128 + first
            assert heard == []
            signal.raise_signal(second)
            assert heard == [second]
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
