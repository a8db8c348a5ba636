"""The history: stored runs are found again, and a crash loses no finished run."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.runs import BEGAN, again, conditions, filled, matmul, model, one_line, results, sweep

from devexplorer.core.base import BadInput
from devexplorer.core.history.filter import Filter
from devexplorer.core.history.store import Store, default_path
from devexplorer.core.records import StoredRun


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path, wait_s=0.05, clock=lambda: BEGAN) as opened:
        yield opened


# --- normal use


def test_every_kind_of_run_is_the_same_when_it_is_read_again(store: Store, path: Path) -> None:
    added = filled(store)
    assert [run.result for run in added] == list(results())
    assert again(path) == added[::-1], "the newest first"
    assert store.get(added[0].id) == added[0]
    assert (store.problem, store.notices()) == (None, ())


def test_the_file_is_made_with_its_folders_at_the_first_use(path: Path) -> None:
    opened = Store(path)
    assert not path.parent.exists()
    assert opened.runs() == []
    opened.close()
    assert path.exists()


def test_the_default_is_in_the_data_folder_of_the_user() -> None:
    assert default_path().name == "history.sqlite3"
    assert default_path().parent.name == "devexplorer"


FILTERS = [
    (Filter(), [4, 3, 2, 1, 0]),
    (Filter(kind="sweep"), [1]),
    (Filter(text="RESNET18 a10"), [4]),
    (Filter(text="night shift"), [2]),
    (Filter(text="tesla"), [3]),
    (Filter(kind="model", text="NVIDIA A10"), [4]),
    (Filter(kind="model", text="tesla"), []),
    (Filter(text="bfloat16"), [0]),
    (Filter(text="float32 simulated"), [3]),
    (Filter(text="100%_"), []),
    (Filter(text="'; DROP TABLE runs; --"), []),
]


@pytest.mark.parametrize(("wanted", "expected"), FILTERS)
def test_runs_are_filtered(store: Store, wanted: Filter, expected: list[int]) -> None:
    filled_with_tags(store)
    found = [run.result for run in store.runs(wanted)]
    assert store.count(wanted) == len(expected)
    assert found == [results()[place] for place in expected]


def filled_with_tags(store: Store) -> list[StoredRun]:
    known = {"device": "vgpu:0", "device_name": "Tesla T4", "uuid": None, "simulated": True}
    return [
        store.add(
            result, conditions(number, **(known if result.simulated else {})), ("night shift",) if number == 2 else ()
        )
        for number, result in enumerate(results())
    ]


def test_a_list_is_of_the_newest(store: Store) -> None:
    added = filled(store)
    assert store.runs(limit=2) == [added[4], added[3]]
    assert store.runs(limit=5)[4:] == [added[0]]
    assert store.count() == 5


def test_tags_are_exchanged_and_found(store: Store, path: Path) -> None:
    run = store.add(matmul(), conditions(), (" baseline ", "baseline"))
    assert run.tags == ("baseline",)
    assert store.tag(run.id, ["fan  full", "x"]).tags == ("fan full", "x")
    assert again(path)[0].tags == ("fan full", "x")
    assert store.runs(Filter(text="baseline")) == []
    assert len(store.runs(Filter(text="FAN"))) == 1
    assert store.tag(run.id, []).tags == ()


@pytest.mark.parametrize("tags", [[""], ["x" * 41], ["a\nb\x00"], [str(number) for number in range(21)]])
def test_what_is_no_tag_is_refused(store: Store, tags: list[str]) -> None:
    run = store.add(matmul(), conditions())
    with pytest.raises(BadInput) as refused:
        store.tag(run.id, tags)
    one_line(str(refused.value))
    with pytest.raises(BadInput):
        store.add(matmul(), conditions(), tags)
    assert store.count() == 1


def test_deleted_runs_are_gone_and_their_numbers_are_not_given_again(store: Store) -> None:
    added = filled(store)
    assert store.delete([added[4].id, added[4].id, added[0].id, 12345]) == 2
    assert store.runs() == [added[3], added[2], added[1]]
    with pytest.raises(BadInput, match=f"no run #{added[4].id}"):
        store.get(added[4].id)
    assert store.add(matmul(), conditions(9)).id > added[4].id


def test_a_figure_that_is_no_number_is_refused_at_the_door(store: Store) -> None:
    with pytest.raises(BadInput, match="no numbers"):
        store.add(matmul(median=float("nan")), conditions())
    assert store.runs() == []


def test_the_same_run_is_recognised(store: Store) -> None:
    run = store.add(matmul(run=3), conditions(1))
    assert store.find(matmul(run=8), conditions(1)) == run.id
    assert store.find(matmul(), conditions(2)) is None
    assert store.find(matmul(median=1.0), conditions(1)) is None


def test_two_processes_add_to_one_history(store: Store, path: Path) -> None:
    store.add(matmul(), conditions(0))
    with Store(path) as other:
        other.add(sweep(), conditions(1))
        store.add(model(), conditions(2))
        assert other.runs() == store.runs()
        assert len({run.id for run in other.runs()}) == 3


ADDING = """
import sys
sys.path[:0] = [{tests!r}, {types!r}]
from pathlib import Path
from fakes.runs import conditions, matmul, samples
from devexplorer.core.history.store import Store
store, number = Store(Path({path!r})), 0
while True:
    number += 1
    print(store.add(matmul(samples(100, seed=number)), conditions(number)).id, flush=True)
"""


def test_a_crash_loses_no_finished_run(path: Path) -> None:
    tests = Path(__file__).parents[2]
    script = ADDING.format(tests=str(tests), types=str(tests.parent / ".ci" / "types"), path=str(path))
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        with child, child.stdout as said:
            numbers = [int(next(said)) for _ in range(5)]
            child.send_signal(signal.SIGKILL)  # somewhere in the next run
            numbers += [int(line) for line in said]
        with Store(path, wait_s=0.5) as store:
            found = {run.id for run in store.runs()}
            assert set(numbers) <= found, "every run that add returned from is there"
            assert store.notices() == ()
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
