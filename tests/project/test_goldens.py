"""Files that DevExplorer wrote before its modules and classes were renamed still open, with the same content.

Never rewrite a golden to make one of these pass (`tests/goldens/make.py` says when to write new ones)."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from goldens import reading
from goldens.reading import COMMANDS, GOLDENS, SECOND, as_then

import devexplorer
from devexplorer.core.files.kinds import RECORDING, SNAPSHOT, TENSORS, recognise
from devexplorer.core.recording.format import Recorded
from devexplorer.core.session.settings import Settings, saved_form

pytestmark = pytest.mark.usefixtures("warm_processes")

THEN = reading.expected()


@pytest.fixture(scope="module")
def link() -> dict[str, Any]:
    return reading.link(GOLDENS / "link_events.bin.gz")


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in GOLDENS.rglob("*") if path.is_file()) < 1.5e6


# --- recording and link


def test_the_recording_ends_in_the_same_state() -> None:
    now = reading.recording(GOLDENS / "session.devrec")
    assert as_then(now, THEN["recording"]) == THEN["recording"]
    assert set(now["tags"]) == {kind.__struct_config__.tag for kind in get_args(Recorded)}
    assert now["alerts"]
    assert {run[0] for run in now["runs"]} == {"matmul", "sweep", "bandwidth", "scaling", "model"}
    assert all(run[2] for run in now["runs"])
    assert {marker[2] for marker in now["markers"]} == {"move", "copy", "cast", ""}, "runs have markers as well"


def test_everything_that_crossed_the_link_leads_to_the_same_state(link: dict[str, Any]) -> None:
    for when in ("before", "after"):
        then = THEN["link"][when]
        came_since = {name: as_then(link[when][name], then[name]) for name in ("plan", "diagnoses")}
        assert {**link[when], **came_since} == then
    assert link["tags"] == THEN["link"]["tags"]


def test_the_state_before_the_engine_died_has_objects_findings_and_a_plan(link: dict[str, Any]) -> None:
    before = link["before"]
    assert {"mlp", "net", "nested", "towers", "joined", "x", "y", "table"} <= set(before["objects"])
    assert [finding["rule"] for finding in before["diagnoses"]["net"]["problems"]] != []
    assert before["diagnoses"]["mlp"]["problems"] == []
    assert [fit["gpu"] for fit in before["plan"]["fits"]] == ["Tesla T4", "2x Tesla T4"]
    assert [crossing["destination"] for crossing in before["crossings"]["towers"]] != []
    assert before["crossover"]["points"]
    assert {ok for _tag, ok, _title in before["commands"]} == {True, False}


@pytest.mark.parametrize("group", THEN["tags"])
def test_every_record_of_then_has_its_tag_and_its_fields(group: str) -> None:
    """New records and new fields need no golden."""
    then, now = THEN["tags"][group], reading.tags()[group]
    assert {tag: fields for tag, fields in then.items() if not set(fields) <= set(now.get(tag, ()))} == {}


def test_the_commands_are_the_same() -> None:
    now = reading.commands(GOLDENS / "link_commands.bin.gz")
    assert as_then(now, THEN["commands"]) == THEN["commands"]


# --- history


def test_the_history_has_the_same_runs_and_figures(tmp_path: Path) -> None:
    copy = tmp_path / "history.sqlite3"
    copy.write_bytes((GOLDENS / "history.sqlite3").read_bytes())
    now = reading.history(copy)
    assert now == THEN["history"]
    assert {run[0] for run in now} == {"matmul", "sweep", "bandwidth", "scaling", "model"}
    assert ["before", "the change"] in [run[1] for run in now]
    assert all(run[3]["torch_version"] and run[5] for run in now)


def test_an_exported_history_can_be_imported() -> None:
    now = reading.imported(GOLDENS / "history.json")
    assert now == THEN["exported"]
    assert [run[5] for run in now] == [run[5] for run in reversed(THEN["history"])]


def test_the_table_of_a_history_is_the_one_that_is_written_today(tmp_path: Path) -> None:
    from devexplorer.core.history.export import write_csv
    from devexplorer.core.history.store import Store

    copy, written = tmp_path / "history.sqlite3", tmp_path / "history.csv"
    copy.write_bytes((GOLDENS / "history.sqlite3").read_bytes())
    with Store(copy) as store:
        write_csv(written, sorted(store.runs(), key=lambda run: run.id))
    assert written.read_text(encoding="utf-8") == (GOLDENS / "history.csv").read_text(encoding="utf-8")
    assert reading.table(GOLDENS / "history.csv") == THEN["table"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("bench")])
def test_a_document_of_bench_can_be_imported(name: str, tmp_path: Path) -> None:
    now = reading.imported(GOLDENS / f"{name}.json")
    then = THEN["documents"][name]
    assert [[run[0], *run[4:]] for run in now] == [[run[0], *run[4:]] for run in then]
    assert {run[0] for run in now} == {name.removeprefix("bench_")}


# --- settings, tensors, snapshots


def test_the_settings_have_the_same_values(tmp_path: Path) -> None:
    (tmp_path / "window.json").write_bytes((GOLDENS / "window.json").read_bytes())  # a damaged one would be renamed
    now = reading.settings(tmp_path)
    assert [rule.pop("devices") for rule in now["alert_rules"]] == [[], []], "a rule of before is about all devices"
    assert {key: now[key] for key in THEN["settings"]} == THEN["settings"], "newer versions have more"
    written = json.loads((GOLDENS / "window.json").read_bytes())
    assert now == {**reading.plain(saved_form(Settings())), **written}
    assert not [key for key, value in written.items() if value == reading.plain(saved_form(Settings())).get(key)], (
        "each is as the user chose it"
    )


@pytest.mark.usefixtures("no_virtual_gpus_left")
def test_files_of_tensors_give_the_same_objects() -> None:
    now = reading.tensors(GOLDENS)
    assert now == THEN["tensors"]
    assert {"mlp", "nested", "x", "y", "table"} <= set(now["workspace.safetensors"])
    assert now["checkpoint.pt"] == [4, [], []]


def test_the_allocator_snapshot_shows_the_same_blocks() -> None:
    now = reading.allocator(GOLDENS / "allocator.pickle")
    assert now == THEN["allocator"]
    assert now["segments"]
    assert now["stacks"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("session.devrec", RECORDING), ("workspace.safetensors", TENSORS), ("tensors.pt", TENSORS), ("checkpoint.pt",
                                                                                                     TENSORS),
        ("allocator.pickle", SNAPSHOT),
    ],
)  # fmt: skip
def test_a_dropped_file_is_recognised(name: str, kind: str) -> None:
    assert recognise(GOLDENS / name).kind == kind


# --- the session as Python


def test_the_script_places_everything_as_it_was(tmp_path: Path) -> None:
    text = (GOLDENS / "session.py").read_text(encoding="utf-8")
    assert reading.run_script(text, THEN["script"], tmp_path) == THEN["script"]
    assert {row[5][0] for rows, _modes in THEN["script"].values() for row in rows if row[5]} == {
        "cpu",
        "vgpu:0",
        "vgpu:1",
        "vgpu:2",
    }


def test_the_notebook_places_everything_as_it_was(tmp_path: Path) -> None:
    assert reading.run_notebook(GOLDENS / "session.ipynb", THEN["script"], tmp_path) == THEN["script"]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("models.handover", "hand_over"),
        ("commands.opened", "OpenedWorkspace"),
        ("records.planner", "FitSpec"),
        ("records.planner", "ServingSpec"),
        ("planner.worker.ask", "planned"),
        ("files.opening", "tensors"),
        ("isolation", "notebook"),
        ("models.inputs", "sample_inputs"),
        ("models.run", "total"),
    ],
)
def test_what_other_scripts_import_is_what_it_is_today(module: str, name: str) -> None:
    """A script took these from where they were, until `devexplorer` itself had them."""
    assert getattr(import_module(f"devexplorer.core.{module}"), name) is getattr(devexplorer, name)


# --- output of commands

ADDED: dict[str, str | tuple[str, ...]] = {
    "env": ".environments",
    "devices": (".host", ".time_unix_s"),
    "doctor": ".modes",
    "place": (".crossings", ".optimizers"),
    "fit": tuple(
        f"{place}.{key}"
        for place in ("", ".cards", ".gpus", ".gpus.cards")
        for key in (
            "late",
            "rest",
            "max_allocated_bytes",
            "used_bytes",
            "step_seconds_",
            "samples_per_s_",
            "samples_per_joule",
            "bound",
            "parts",
            "board_power_w",
            "cards.device",
            "curve",
            "tf32",
            "channels_last",
            "input_copy",
            "calibrations",
        )
    ),
}
"""Keys that came later on purpose; who read the documents before still finds all they know."""


@pytest.mark.usefixtures("no_virtual_gpus_left")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_keys_that_it_printed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDENS)
    then, now = reading.documents(GOLDENS / f"{name}.json"), reading.printed(COMMANDS[name])
    differing = set(reading.differing(reading.keys(then), reading.keys(now)))
    assert {line for line in differing if not line.startswith(ADDED.get(name, "none"))} == set()
    assert reading.lost(SECOND / f"{name}.json", now) == []
    assert all(document["schema"] == 1 for document in (*then, *now))


def test_a_key_that_is_gone_or_new_would_be_seen() -> None:
    then = reading.keys(
        [{"schema": 1, "runs": [{"device": "cpu"}, {"device": "cpu", "tflops": {"median": 1}}], "empty": []}]
    )
    now = reading.keys([{"schema": 2, "runs": [{"device": "cpu", "tflops": {"mean": 1}}], "empty": [{"pid": 1}]}])
    assert reading.differing(then, then) == []
    assert sorted(reading.differing(then, now)) == [".runs.tflops.mean: only now", ".runs.tflops.median: only then"]
    assert reading.differing(then, {**now, "more": {}})[-1:] != []


# --- no private data


def test_nothing_in_them_names_a_person_or_a_folder_of_one() -> None:
    for path in GOLDENS.rglob("*"):
        if not path.is_file() or path.suffix in (".py", ".pyc"):
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                data = b"".join(map(file.read, file.namelist()))
        homes = set(re.findall(rb"/(?:home|Users)/(\w+)|(/root/)", data))
        assert homes <= {(b"user", b"")}, path.name
