"""Files are replaced only after a complete write: a failure leaves the old file, no temporary file, and one line for
the user."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fakes.disk import full_disk, somebody_else
from places import Place, place_of
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.files.records import Load, Save
from devexplorer.core.records import BuildModel, NewTensor

FORMS = ["safetensors", "pt", "module"]


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("cpu") as made:
        made.do(BuildModel(recipe="mlp"))
        yield made


def fails(place: Place, path: Path, form: str, match: str, targets: tuple[str, ...] = ("mlp",)) -> None:
    with pytest.raises(BadInput, match=match) as error:
        place.do(Save(targets=targets, path=str(path), form=form, overwrite=True))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("room", [0, 100, 20_000])
def test_a_full_disk_leaves_the_old_file_whole_and_nothing_beside_it(
    place: Place, tmp_path: Path, form: str, room: int
) -> None:
    path = tmp_path / "mlp.bin"
    path.write_bytes(b"the old one")
    with full_disk(room):
        fails(place, path, form, "the disk is full; the previous file is unchanged")
    assert path.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", FORMS)
def test_folders_rights_and_names_are_said_plainly(place: Place, tmp_path: Path, form: str) -> None:
    fails(place, tmp_path / "no" / "a.bin", form, "there is no folder")
    fails(place, tmp_path, form, "is a folder; name a file")
    fails(place, tmp_path / ("n" * 300), form, "file name too long")
    fails(place, Path("/dev/null"), form, "is not a regular file")
    fails(place, Path("a\0b"), form, "a zero byte")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    fails(place, tmp_path / "round" / "x", form, "cannot be written|there is no folder")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    with somebody_else():
        fails(place, locked / "a.bin", form, "no permission to write there")
    assert not list(locked.iterdir())
    with pytest.raises(BadInput, match="the file needs a name"):
        place.do(Save(targets=("mlp",), path="", form=form))
    place.workspace.drop(("mlp",))
    fails(place, tmp_path / "a.bin", form, "the workspace is empty", ())


def test_what_the_disk_has_no_room_for_is_refused_before_anything_is_written(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    fails(place, tmp_path / "a.pt", "pt", "needs .* KiB, and 1000 B are free on that disk")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_there_is_replaced_only_when_told_so(place: Place, tmp_path: Path, form: str) -> None:
    path = tmp_path / "mlp.bin"
    path.write_bytes(b"the old one")
    answer = place.answer(Save(targets=("mlp",), path=str(path), form=form))
    assert answer.failed
    assert path.read_bytes() == b"the old one"
    assert [offer.label for offer in answer.offers] == ["Overwrite it"]
    place.do(answer.offers[0].command)
    assert path.stat().st_size > 30_000


def test_a_link_stays_a_link(place: Place, tmp_path: Path) -> None:
    (tmp_path / "real.pt").write_bytes(b"old")
    (tmp_path / "link.pt").symlink_to(tmp_path / "real.pt")
    place.do(Save(targets=("mlp",), path=str(tmp_path / "link.pt"), form="pt", overwrite=True))
    assert (tmp_path / "link.pt").is_symlink()
    assert (tmp_path / "real.pt").stat().st_size > 30_000


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from devexplorer.core.files import save
from devexplorer.core.files.entries import Ticker
from devexplorer.core.base.progress import NO_PROGRESS
left = 3
class Dies(Ticker):
    def __call__(self, count):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
path, form = Path(sys.argv[1]), sys.argv[2]
tick = Dies(NO_PROGRESS, 1, "", "")
tensors = {str(n): torch.rand(10000) for n in range(9)}
with save.written(str(path), path, 0) as temporary:
    if form == "pt":
        save.write_torch(temporary, tensors, tick)
    else:
        save.write_safetensors(temporary, tensors, {}, tick)
"""


@pytest.mark.usefixtures("warm_processes")
@pytest.mark.parametrize("form", ["safetensors", "pt"])
def test_a_kill_in_the_middle_leaves_the_old_file_whole(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"the old one")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), form], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"the old one"


def test_what_cannot_be_in_a_file_is_named(place: Place, tmp_path: Path) -> None:
    add = place.workspace.add
    add("sparse", torch.eye(3).to_sparse())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to give them up
        add("quantised", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
    add("nothing", torch.empty(3, device="meta"))
    add("complex", torch.ones(2, dtype=torch.complex128))
    add("lazy", nn.LazyLinear(3))
    add("relu", nn.ReLU())
    for form in ("safetensors", "pt"):
        path = tmp_path / f"a.{form}"
        fails(place, path, form, r"'sparse' is sparse.*to_dense\(\)", ("sparse",))
        fails(place, path, form, r"'quantised' is quantised.*dequantize\(\)", ("quantised",))
        fails(place, path, form, "'nothing' has no values: it is on the device meta", ("nothing",))
        fails(place, path, form, "'lazy:weight' has no values before the first forward", ("lazy",))
        fails(place, path, form, "'relu' has no registered parameters", ("relu",))
        fails(place, path, form, "there is no object 'nobody'", ("nobody",))
        fails(place, path, form, "'relu' has no part 'x'", ("relu:x",))
    fails(
        place,
        tmp_path / "a.safetensors",
        "safetensors",
        "'complex' is complex128, which safetensors cannot hold; save it as .pt",
        ("complex",),
    )
    fails(place, tmp_path / "a.safetensors", "pt", "with the name of a safetensors file", ("mlp",))
    fails(place, tmp_path / "a.zip", "zip", "there is no format 'zip'", ("mlp",))
    fails(place, tmp_path / "a.pt", "module", "the format 'module' is for one model", ("complex",))
    assert not list(tmp_path.iterdir())
    place.do(Save(targets=("complex",), path=str(tmp_path / "a.pt"), form="pt"))
    place.do(Load(path=str(tmp_path / "a.pt"), name="again"))
    assert place.workspace.tensor_named("again").dtype == torch.complex128


def test_a_model_that_cannot_be_pickled_is_refused_in_one_line(place: Place, tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    model.register_forward_hook(lambda *given: None)
    place.workspace.add("hooked", model)
    fails(
        place,
        tmp_path / "a.pt",
        "module",
        "torch.save cannot write a Linear: .*; save its state dict instead",
        ("hooked",),
    )
    assert not list(tmp_path.iterdir())


def test_lazy_models_of_a_workspace_come_back_lazy(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="lazy-mlp"))
    place.do(NewTensor(fill="ones", shape=(2,)))
    answer = place.answer(Save(targets=(), path=str(tmp_path / "all.safetensors")))
    assert "lazy parameters had no values yet" in answer.words
    place.do(Load(path=str(tmp_path / "all.safetensors")))
    assert not place.snapshot("lazy-mlp2").rows[2].initialised
