"""Checkpoints in several files go into models as one: compared, loaded with progress, and refused whole where a file of
them is not what it should be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from places import Place, place_of
from safetensors.torch import save_file
from torch import Tensor, nn

from devexplorer.core.base import BadInput, ProgressMonitor
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.files.records import CheckpointCompared, CompareCheckpoint, LoadCheckpoint
from devexplorer.core.records import BuildModel, Undo

STATE = {
    "0.weight": torch.rand(256, 20), "0.bias": torch.rand(256), "2.weight": torch.rand(10, 256),
    "2.bias": torch.rand(10),
}  # fmt: skip
STEMS = {"safetensors": "model", "bin": "pytorch_model"}


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        made.do(BuildModel(recipe="mlp", device=made.first))
        yield made


def values(place: Place) -> dict[str, Tensor]:
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    return {key: value.cpu().clone() for key, value in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def sharded(folder: Path, suffix: str = "safetensors") -> tuple[Path, Path, Path]:
    """Two shards with half of the keys each: the first one, the second one, the index."""
    stem = STEMS[suffix]
    paths = [folder / f"{stem}-{number:05}-of-00002.{suffix}" for number in (1, 2)]
    keys = list(STATE)
    for path, part in zip(paths, (keys[:2], keys[2:]), strict=True):
        (save_file if suffix == "safetensors" else torch.save)({key: STATE[key] for key in part}, path)
    named = {key: paths[at // 2].name for at, key in enumerate(keys)}
    index = folder / f"{stem}.{suffix}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 32_104}, "weight_map": named}))
    return paths[0], paths[1], index


@pytest.mark.parametrize("suffix", STEMS)
@pytest.mark.parametrize("by", ["folder", "index", "shards"])
def test_a_sharded_checkpoint_goes_into_a_model_as_one_and_is_taken_back(
    place: Place, tmp_path: Path, suffix: str, by: str
) -> None:
    _, _, index = sharded(tmp_path, suffix)
    path = str(index if by == "index" else tmp_path)
    if by == "shards":
        index.unlink()
    (event,) = place.do(CompareCheckpoint(target="mlp", path=path)).events
    assert isinstance(event, CheckpointCompared)
    found = event.comparison
    assert (found.matching, found.missing_count, found.unexpected_count, found.mismatched_count) == (4, 0, 0, 0)
    before = values(place)
    told: list[float] = []
    monitor = ProgressMonitor(report=lambda fraction, _: told.append(fraction))
    dispatch(place.workspace, LoadCheckpoint(target="mlp", path=path), monitor)
    assert same(values(place), STATE)
    assert told == sorted(told)
    assert len(set(told)) >= len(STATE), "each shard moves it on"
    place.do(Undo())
    assert same(values(place), before)


def is_lfs_pointer(first: Path, second: Path, index: Path) -> None:
    second.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n")


def is_cut_off(first: Path, second: Path, index: Path) -> None:
    second.write_bytes(second.read_bytes()[:-1])


def is_empty(first: Path, second: Path, index: Path) -> None:
    second.write_bytes(b"")


def is_outside(first: Path, second: Path, index: Path) -> None:
    second.rename(index.parent.parent / "x.safetensors")
    index.write_text(index.read_text().replace(second.name, "../x.safetensors"))


def is_a_folder(first: Path, second: Path, index: Path) -> None:
    second.unlink()
    second.mkdir()


def is_damaged(first: Path, second: Path, index: Path) -> None:
    index.write_text(index.read_text()[:-20])


def is_everything(first: Path, second: Path, index: Path) -> None:
    first.unlink()
    second.unlink()


def is_an_index(first: Path, second: Path, index: Path) -> None:
    index.write_text(index.read_text().replace(second.name, index.name))


REFUSED: dict[str, tuple[Callable[[Path, Path, Path], None], str]] = {
    "a git-lfs pointer": (is_lfs_pointer, r"00002-of-00002.safetensors' cannot be opened: it is a git-lfs pointer"),
    "a shard that is cut off": (is_cut_off, r"00002-of-00002.safetensors' cannot be opened: it is cut off"),
    "an empty shard": (is_empty, r"00002-of-00002.safetensors' is empty"),
    "a file outside": (is_outside, r"names '\.\./x.safetensors', which is no file in its own folder"),
    "a folder for a shard": (is_a_folder, r"00002-of-00002.safetensors' is not a regular file"),
    "an index that is cut off": (is_damaged, "is no JSON: it is damaged or cut off"),
    "no shard": (is_everything, "all of its shards are missing"),
    "an index that names itself": (is_an_index, "is an index and no shard"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_one_bad_file_refuses_the_checkpoint(place: Place, tmp_path: Path, what: str) -> None:
    damage, words = REFUSED[what]
    folder = tmp_path / "model"
    folder.mkdir()
    damage(*sharded(folder))
    before = values(place)
    for command in (
        CompareCheckpoint(target="mlp", path=str(folder)),
        LoadCheckpoint(target="mlp", path=str(folder), partial=True),
    ):
        with pytest.raises(BadInput, match=words) as error:
            place.do(command)
        assert "\n" not in str(error.value)
    assert same(values(place), before)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (False, "1 shard is missing: model-00002-of-00002.safetensors; 2 tensors of it cannot be read"),
        (True, "he index names 2 tensors that no shard has: 2.weight, 2.bias"),
    ],
)
def test_what_is_missing_is_named_and_left_out_only_on_request(
    place: Place, tmp_path: Path, other: bool, why: str
) -> None:
    second = sharded(tmp_path)[1]
    second.unlink()
    if other:
        save_file({"other": torch.ones(1)}, second)
    before = values(place)
    answer = place.answer(LoadCheckpoint(target="mlp", path=str(tmp_path)))
    assert answer.failed
    assert why in answer.words
    assert same(values(place), before)
    place.do(answer.offers[0].command)
    after = values(place)
    assert torch.equal(after["0.weight"], STATE["0.weight"])
    assert torch.equal(after["2.weight"], before["2.weight"])
