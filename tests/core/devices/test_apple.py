"""Apple's GPU from the output of macOS tools, and nothing without them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from devexplorer.core.devices.apple import COMMAND, details

ANSWER = (
    '{"SPDisplaysDataType": [{"_name": "Apple M2 Pro", "sppci_model": "Apple M2 Pro", "sppci_cores": "19",'
    ' "spdisplays_mtlgpufamilysupport": "spdisplays_metal3", "spdisplays_vendor": "sppci_vendor_Apple",'
    ' "spdisplays_ndrvs": []}]}'
)


def test_chip_cores_and_metal_are_shown_and_why_there_is_no_power() -> None:
    asked: list[Sequence[str]] = []

    def answer(command: Sequence[str]) -> str:
        asked.append(command)
        return ANSWER

    found = details("mps", 5.0, answer)
    assert asked == [COMMAND]
    assert found.more == {"chip": "Apple M2 Pro", "GPU cores": "19", "Metal": "metal3", "maker": "Apple"}
    assert (found.device, found.time_unix_s) == ("mps", 5.0)
    assert "administrators" in found.missing["power_w"]


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", "{}", '{"SPDisplaysDataType": []}', '{"SPDisplaysDataType": [7]}']
)
def test_an_answer_of_another_form_is_no_answer(text: str) -> None:
    assert details("mps", 1.0, lambda command: text).more == {}


@pytest.mark.parametrize(
    "error", [FileNotFoundError(), subprocess.TimeoutExpired("x", 1), subprocess.CalledProcessError(1, "x")]
)
def test_a_system_that_does_not_answer_hides_nothing(error: Exception) -> None:
    def fail(command: Sequence[str]) -> str:
        raise error

    assert details("mps", 1.0, fail).missing
