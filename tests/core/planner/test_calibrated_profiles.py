"""Calibrated cards beside the profiles: their names, and what they share with the card of the datasheet."""

import pytest
from fakes.calibrations import calibration

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import calibrated_profiles, load_profiles, parse_planned, planned_profiles

OWN = calibration({"memory": 0.9})


def names(spec):
    return [profile.name for profile in parse_planned(spec, [OWN])]


def test_it_is_found_by_the_word_calibrated_and_by_its_name():
    assert names("t4") == ["Tesla T4"]
    assert names("t4 calibrated") == [OWN.name]
    assert names(f"2x {OWN.name}, NVIDIA A10") == [OWN.name, OWN.name, "NVIDIA A10"]
    with pytest.raises(BadInput, match="there is no profile 't4 calibrated'"):
        parse_planned("t4 calibrated")


def test_it_has_the_memory_of_its_profile_and_factors_of_its_own():
    [card] = parse_planned(OWN.name, [OWN])
    plain = load_profiles()["Tesla T4"]
    assert (card.model, card.calibration) == ("Tesla T4", OWN)
    assert (card.memory_bytes, card.tflops) == (plain.memory_bytes, plain.tflops)
    assert next(iter(planned_profiles([OWN]))) == OWN.name


def test_of_a_card_that_this_version_does_not_know_there_is_none():
    assert calibrated_profiles([calibration({}, card="a card of a newer version")]) == {}
