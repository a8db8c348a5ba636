"""Calibrations on the disk: one for each card and environment, under names that are all different."""

import json

import pytest
from fakes.calibrations import MEASURED_UNIX_S, calibration, conditions, result, row
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.planner.calibrate.store import CalibrationStore, calibration_of

FOUND = calibration({"memory": 0.9, "half": 1.05})


@pytest.fixture
def store(tmp_path):
    return CalibrationStore(tmp_path / "calibrations")


def test_it_is_kept_listed_and_removed(store):
    assert store.load() == ()
    assert store.save(FOUND) == FOUND
    assert store.load() == (FOUND,)
    store.remove(FOUND.name)
    assert store.load() == ()
    with pytest.raises(BadInput, match=f"there is no calibration '{FOUND.name}'; there is none"):
        store.remove(FOUND.name)


def test_a_newer_one_of_the_same_card_replaces_it_and_others_have_their_own(
    store,
):
    others = [
        replace(FOUND, uuid="GPU-2"), replace(FOUND, host="there"), replace(FOUND, torch_version="2.12.0"),
        replace(FOUND, simulated=True),
    ]  # fmt: skip
    names = [store.save(each).name for each in (FOUND, *others)]
    assert names == [FOUND.name, *(f"{FOUND.name} ({number})" for number in (2, 3, 4, 5))]
    assert len(store.load()) == 5
    assert store.save(others[0]).name == names[1], "its own name is free to it"
    newer = replace(FOUND, name="Tesla T4 calibrated on 2 Dec 2026", factors=())
    store.save(newer)
    assert newer in store.load()
    assert len(store.load()) == 5


def test_a_damaged_file_and_one_of_a_newer_version_are_left_alone(store):
    store.save(FOUND)
    [path] = store.folder.glob("*.json")
    content = json.loads(path.read_bytes())
    assert content["schema"] == 1
    newer = store.folder / "newer.json"
    newer.write_text(json.dumps({**content, "schema": 2}))
    (store.folder / "damaged.json").write_text('{"schema": 1, "calibr')
    assert store.load() == (FOUND,)
    store.remove(FOUND.name)
    assert newer.exists()


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "calibrations").write_text("")
    with pytest.raises(Unavailable, match="could not be saved"):
        CalibrationStore(tmp_path / "calibrations").save(FOUND)


def test_of_a_run():
    found = calibration_of(result(row("memory", 0.9), row("half", 0.8)), conditions())
    assert found.name == "Tesla T4 calibrated on 27 Nov 2026"
    assert found.values == pytest.approx({"memory": 0.9, "half": 0.8})
    assert (found.uuid, found.host, found.device, found.torch_version) == ("GPU-1", "here", "cuda:0", "2.13.0")
    assert (found.measured_unix_s, found.simulated) == (MEASURED_UNIX_S, False)
    assert calibration_of(result(simulated=True), conditions()).name.endswith("2026 (simulated)")
    with pytest.raises(BadInput, match="did not finish"):
        calibration_of(result(stopped=True), conditions())
