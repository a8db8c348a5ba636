"""Files that DevExplorer wrote when all of its features were one program open with the same content: recordings,
workspaces, histories, saved scripts, settings.

`goldens/second/expected.json` says what each held. Never rewrite a golden to make one of these pass: where one fails,
somebody's file has lost something."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest
from goldens import reading
from goldens.reading import COMMANDS_SINCE, READINGS, SECOND, as_then

from devexplorer.core.files.kinds import RECORDING, SCRIPT, TENSORS, WORKSPACE, recognise
from devexplorer.core.recording.format import Recorded
from devexplorer.core.session.settings import Settings, saved_form

pytestmark = pytest.mark.usefixtures("warm_processes", "no_virtual_gpus_left")

THEN = reading.expected(SECOND)
KINDS = {"matmul", "sweep", "bandwidth", "scaling", "model", "allreduce", "calibrate"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The goldens where they may be written to: a history has a journal, damaged settings are renamed."""
    return Path(shutil.copytree(SECOND, tmp_path / "goldens"))


@pytest.mark.parametrize("what", READINGS)
def test_it_has_the_content_that_it_had(what: str, folder: Path) -> None:
    now = json.loads(json.dumps(READINGS[what](folder)))
    assert as_then(now, THEN[what]) == THEN[what]


def test_every_file_has_its_reading() -> None:
    assert {*READINGS, "script"} == set(THEN)


def test_nothing_that_files_can_hold_was_forgotten() -> None:
    recorded, settings = THEN["recording"], json.loads((SECOND / "window.json").read_bytes())
    assert set(recorded["tags"]) == {kind.__struct_config__.tag for kind in get_args(Recorded)}
    assert {run[0] for run in recorded["runs"]} == {run[0] for run in THEN["history"]} == KINDS
    assert recorded["alerts"]
    assert THEN["checks"]
    assert THEN["calibrations"]
    assert not [key for key, value in settings.items() if value == reading.plain(saved_form(Settings())).get(key)]
    models = THEN["workspace"]["objects"]
    assert models["net"]["stored"][0] == "misplaced.py:Net", "its code has not run"
    assert models["net"]["state"]
    assert models["nested"]["hops"]
    assert [row for row in models["nested"]["seen"][0] if row[7]], "a tied weight"
    assert {tuple(row[5]) for row in models["nested"]["seen"][0]} >= {("cpu",), ("vgpu:0",), ("vgpu:1",)}


def test_an_exported_history_has_the_runs_of_the_history(folder: Path) -> None:
    runs = reversed(reading.imported(folder / "history.json"))
    kind_tags_conditions_figures = [[run[0], run[1], run[3], run[5]] for run in runs]
    assert kind_tags_conditions_figures == [[run[0], run[1], run[3], run[5]] for run in THEN["history"]]


def test_the_table_of_a_history_is_the_one_that_is_written_today(folder: Path) -> None:
    from devexplorer.core.history.export import write_csv
    from devexplorer.core.history.store import Store

    with Store(folder / "history.sqlite3") as store:
        write_csv(folder / "now.csv", sorted(store.runs(), key=lambda run: run.id))
    assert (folder / "now.csv").read_bytes() == (SECOND / "history.csv").read_bytes()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("session.devrec", RECORDING), ("workspace.devexplorer", WORKSPACE), ("copy.devexplorer", WORKSPACE),
        ("tensors.safetensors", TENSORS), ("session.py", SCRIPT),
    ],
)  # fmt: skip
def test_a_dropped_file_is_recognised(name: str, kind: str) -> None:
    assert recognise(SECOND / name).kind == kind


def test_the_script_places_everything_as_it_was(tmp_path: Path) -> None:
    text = (SECOND / "session.py").read_text(encoding="utf-8")
    assert reading.run_script(text, THEN["script"], tmp_path) == THEN["script"]


def test_the_notebook_places_everything_as_it_was(tmp_path: Path) -> None:
    assert reading.run_notebook(SECOND / "session.ipynb", THEN["script"], tmp_path) == THEN["script"]


# That of the first goldens has the others.
@pytest.mark.parametrize("name", sorted(COMMANDS_SINCE.keys() - reading.COMMANDS.keys()))
def test_a_command_prints_the_keys_that_it_printed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = folder / "data" / "devexplorer"
    data.mkdir(parents=True)
    shutil.copy(folder / "history.sqlite3", data)
    monkeypatch.setenv("XDG_DATA_HOME", str(data.parent))
    monkeypatch.chdir(folder)
    now = reading.printed(COMMANDS_SINCE[name])
    assert reading.lost(SECOND / f"{name}.json", now) == []
    assert all(document["schema"] == 1 for document in now)
