"""`bench calibrate`, `calibrations` and `fit` with a calibrated card, as a user runs them."""

import pytest
from fakes.calibrations import calibration

from devexplorer.core.cli.run import main
from devexplorer.core.history.export import write_json
from devexplorer.core.history.report import write_report
from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import import_file
from devexplorer.core.planner.calibrate.kind import CalibrateResult
from devexplorer.core.planner.calibrate.store import CalibrationStore

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left")
COMMAND = ("bench", "calibrate", "--virtual", "Tesla T4")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_it_is_measured_kept_listed_and_removed(document, capfd):
    content = document(*COMMAND)
    assert content["benchmark"] == "calibrate"
    for run in content["runs"]:
        assert (run["device"], run["card"], run["simulated"], run["verified"]) == ("vgpu:0", "Tesla T4", True, True)
        assert run["value"]["median"] == pytest.approx(1.0)
        assert run["measured"]["median"] == pytest.approx(run["modelled"], rel=0.02)
        assert {factor["name"] for factor in run["factors"]} >= {"memory", "half", "host", "link"}
    [known] = document("calibrations")["calibrations"]
    assert known["name"].startswith("Tesla T4 calibrated on ")
    assert known["name"].endswith(" (simulated)")
    assert (known["card"], known["device"], known["simulated"]) == ("Tesla T4", "vgpu:0", True)
    capfd.readouterr()
    assert main(["calibrations"]) == 0
    printed = capfd.readouterr().out
    assert "memory bandwidth" in printed
    assert ", simulated" in printed
    assert main(["calibrations", "--remove", known["name"]]) == 0
    assert "No card has been calibrated" in capfd.readouterr().out
    assert document("calibrations")["calibrations"] == []


def test_the_table_says_the_factors_and_that_they_are_simulated(capfd):
    assert main([*COMMAND, "--no-store"]) == 0
    printed = capfd.readouterr()
    assert "simulated, Tesla T4: memory bandwidth 1.00" in printed.out
    assert "Saved" not in printed.err
    assert CalibrationStore().load() == (), "--no-store keeps nothing"
    assert main([*COMMAND]) == 0
    assert "Saved as 'Tesla T4 calibrated on" in capfd.readouterr().err


def test_it_is_in_the_history_in_reports_and_in_files(tmp_path):
    assert main([*COMMAND]) == 0
    with Store() as store:
        [stored] = runs = store.runs()
    assert isinstance(stored.result, CalibrateResult)
    write_report(tmp_path / "report.html", runs)
    assert "<h2>Calibrations</h2>" in (tmp_path / "report.html").read_text()
    write_json(tmp_path / "export.json", runs)
    with Store(tmp_path / "other.sqlite3") as other:
        assert import_file(tmp_path / "export.json", other).startswith("1 run imported")
        [added] = other.runs()
    assert isinstance(added.result, CalibrateResult)
    assert (added.result.rows, added.result.card) == (stored.result.rows, "Tesla T4")


@pytest.mark.usefixtures("warm_processes")
def test_fit_plans_with_it(document):
    slow = calibration({"memory": 0.5, "vector": 0.5, "half": 0.5, "kernel": 2.0, "host": 2.0})
    CalibrationStore().save(slow)
    cards = ("--gpu", "t4", "--gpu", "t4 calibrated")
    content = document("fit", "mlp", *cards, "--batch", "4096")
    plain, own = content["gpus"]
    assert (plain["gpu"], own["gpu"]) == ("Tesla T4", slow.name)
    assert own["step_seconds"] == pytest.approx(2 * plain["step_seconds"], rel=1e-3)
    ranges = [card["step_seconds_high"] / card["step_seconds_low"] for card in (own, plain)]
    assert ranges[0] == pytest.approx(ranges[1]), "kernels do not stand for whole steps"
    assert own["bytes"] == plain["bytes"]
    assert [item["name"] for item in content["calibrations"]] == [slow.name]
    assert any(slow.name in sentence and "cuda:0 of here" in sentence for sentence in content["assumptions"])
    assert slow.name in {card["gpu"] for card in document("fit", "mlp")["gpus"]}, "one of all cards"


def test_what_cannot_be_calibrated_is_one_line(refusal):
    assert "cpu cannot be calibrated: the cost model is one of GPUs" in refusal("bench", "calibrate", "--device", "cpu")
    assert "there is no device 'cuda:0' here" in refusal("bench", "calibrate")
    assert "there is no calibration 'x'; there is none" in refusal("calibrations", "--remove", "x")
    assert "there is no profile 't4 calibrated'" in refusal("fit", "mlp", "--gpu", "t4 calibrated")
