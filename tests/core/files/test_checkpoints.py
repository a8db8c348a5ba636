"""Checkpoints into models: matches are reported first, values go to their tensors' devices, a failure leaves the model
unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from places import Place, place_of
from safetensors.torch import save_file
from torch import Tensor, nn

from devexplorer.core.base import BadInput, Cancelled, DoesNotFit, ProgressMonitor
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.files import entries
from devexplorer.core.files.records import (
    CheckpointCompared,
    CheckpointComparison,
    CompareCheckpoint,
    KeyMismatch,
    LoadCheckpoint,
    Save,
)
from devexplorer.core.files.safe_file import SafeFile
from devexplorer.core.records import BuildModel, Forward, Move, Redo, Undo


@pytest.fixture(params=["cpu", "vgpu"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_of(request.param) as made:
        yield made


def model(place: Place, name: str) -> nn.Module:
    found = place.workspace.get(name)
    assert isinstance(found, nn.Module)
    return found


def values(place: Place, name: str) -> dict[str, Tensor]:
    return {key: value.cpu().clone() for key, value in model(place, name).state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def compared(place: Place, target: str, path: Path, strip: str = "") -> CheckpointComparison:
    (event,) = place.do(CompareCheckpoint(target=target, path=str(path), strip=strip)).events
    assert isinstance(event, CheckpointCompared)
    return event.comparison


def written(folder: Path, state: dict[str, Any], form: str = "safetensors") -> Path:
    path = folder / f"checkpoint.{form}"
    if form == "pt":
        torch.save(state, path)
    else:
        save_file(state, path)
    return path


def other_mlp() -> dict[str, Tensor]:
    return {
        "0.weight": torch.rand(256, 20), "0.bias": torch.rand(256), "2.weight": torch.rand(10, 256),
        "2.bias": torch.rand(10),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["safetensors", "pt"])
def test_values_go_to_where_their_tensors_are(place: Place, tmp_path: Path, form: str) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    if place.second:
        place.do(Move(targets=("mlp:2",), device=place.second))
    parameters = list(model(place, "mlp").parameters())
    new = other_mlp()
    outcome = place.do(LoadCheckpoint(target="mlp", path=str(written(tmp_path, new, form))))
    assert same(values(place, "mlp"), new)
    now = list(model(place, "mlp").parameters())
    assert all(one is other for one, other in zip(parameters, now, strict=True))
    assert {str(one.device) for one in now} == {place.first, place.second or place.first}
    assert outcome.changed[0] == place.snapshot("mlp")
    assert place.first in outcome.answer.words


def test_undo_gives_the_old_values_back_and_redo_the_new_ones(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="resnet18", device=place.first))
    before = values(place, "resnet18")
    new = {key: torch.rand_like(value) if value.is_floating_point() else value + 7 for key, value in before.items()}
    place.do(LoadCheckpoint(target="resnet18", path=str(written(tmp_path, new))))
    assert same(values(place, "resnet18"), new)
    state = place.workspace.history.state()
    assert state.title is not None
    assert "into resnet18" in state.title
    place.do(Undo())
    assert same(values(place, "resnet18"), before)
    place.do(Redo())
    assert same(values(place, "resnet18"), new)


def test_what_does_not_fit_is_counted_named_and_refused_with_ways_out(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    before = values(place, "mlp")
    new = other_mlp()
    del new["2.bias"]
    new["2.weight"] = torch.rand(11, 256)
    new["extra"] = torch.rand(1)
    path = written(tmp_path, new)
    found = compared(place, "mlp", path)
    assert (found.matching, found.missing, found.unexpected) == (2, ("2.bias",), ("extra",))
    assert found.mismatched == (KeyMismatch("2.weight", (10, 256), (11, 256)),)
    assert (found.missing_count, found.unexpected_count, found.mismatched_count) == (1, 1, 1)
    answer = place.answer(LoadCheckpoint(target="mlp", path=str(path)))
    assert answer.failed
    assert "1 key (2.bias) is missing in the file" in answer.words
    assert "1 key (extra) is unexpected" in answer.words
    assert "2.weight is 10×256 in the model and 11×256 in the file" in answer.words
    assert same(values(place, "mlp"), before)
    assert [offer.label for offer in answer.offers] == ["Load what fits"]
    outcome = place.do(answer.offers[0].command)
    after = values(place, "mlp")
    assert torch.equal(after["0.weight"], new["0.weight"])
    assert torch.equal(after["2.weight"], before["2.weight"])
    assert "Left out" in outcome.answer.words
    place.do(Undo())
    assert same(values(place, "mlp"), before)


@pytest.mark.parametrize("prefix", ["module.", "model.", "net.module."])
def test_a_prefix_is_found_and_can_be_stripped(place: Place, tmp_path: Path, prefix: str) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    new = other_mlp()
    path = written(tmp_path, {f"{prefix}{key}": value for key, value in new.items()}, "pt")
    found = compared(place, "mlp", path)
    assert (found.matching, found.suggested_strip) == (0, prefix)
    assert compared(place, "mlp", path, prefix).matching == 4
    answer = place.answer(LoadCheckpoint(target="mlp", path=str(path)))
    assert answer.failed
    assert [offer.label for offer in answer.offers] == [f"Strip {prefix}"]
    place.do(answer.offers[0].command)
    assert same(values(place, "mlp"), new)


def test_the_file_of_a_backbone_finds_its_part_of_the_model(place: Place, tmp_path: Path) -> None:
    place.workspace.add("whole", nn.ModuleDict({"backbone": nn.Linear(2, 3), "head": nn.Linear(3, 1)}))
    new = {"weight": torch.rand(3, 2), "bias": torch.rand(3)}
    answer = place.answer(LoadCheckpoint(target="whole", path=str(written(tmp_path, new))))
    assert [offer.label for offer in answer.offers] == ["Load into backbone"]
    place.do(answer.offers[0].command)
    assert torch.equal(model(place, "whole").get_parameter("backbone.weight"), new["weight"])


def test_of_several_objects_in_a_file_the_one_of_that_name_is_taken(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", seed=1))
    place.do(BuildModel(recipe="mlp", seed=2))
    second = values(place, "mlp2")
    for form in ("safetensors", "pt"):
        path = str(tmp_path / f"both.{form}")
        place.do(Save(targets=("mlp", "mlp2"), path=path, form=form))
        place.do(LoadCheckpoint(target="mlp2", path=path))
        assert same(values(place, "mlp2"), second)


@pytest.mark.parametrize("key", ["model", "state_dict"])
def test_a_checkpoint_of_a_training_is_taken_apart(place: Place, tmp_path: Path, key: str) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    mlp = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(mlp.parameters())
    mlp(torch.rand(1, 20)).sum().backward()
    optimizer.step()
    path = tmp_path / "training.pt"
    torch.save({"epoch": 3, key: mlp.state_dict(), "optimizer": optimizer.state_dict()}, path)
    answer = place.answer(LoadCheckpoint(target="mlp", path=str(path)))
    assert f"the part '{key}' is the one that fits" in answer.words
    assert same(values(place, "mlp"), dict(mlp.state_dict()))


def test_what_of_a_tensor_may_differ_and_what_need_not_be_there(place: Place, tmp_path: Path) -> None:
    """Dtypes of the model stay, but complex values do not silently become real; old files count no batches."""
    norm = nn.BatchNorm1d(3)
    norm.register_buffer("cache", torch.ones(3), persistent=False)
    place.workspace.add("norm", norm.half())
    old = {key: torch.full((3,), 2.0) for key in norm.state_dict() if key != "num_batches_tracked"}
    path = written(tmp_path, old)
    found = compared(place, "norm", path)
    assert (found.missing, found.matching) == ((), 4)
    assert "weight: float32 → float16" in found.casts
    place.do(LoadCheckpoint(target="norm", path=str(path)))
    assert norm.weight.tolist() == [2, 2, 2]
    assert norm.weight.dtype == torch.float16
    complex_bias = old | {"bias": torch.ones(3, dtype=torch.complex64)}
    assert compared(place, "norm", written(tmp_path, complex_bias)).mismatched_count == 1


def test_tied_layers_are_loaded_once_and_may_be_in_the_file_once(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="tied", device=place.first, seed=1))
    path = tmp_path / "tied.safetensors"
    place.do(Save(targets=("tied",), path=str(path)))
    saved = values(place, "tied")
    plain = {key: value for key, value in saved.items() if not key.startswith("4.")}
    for file in (path, written(tmp_path, plain), written(tmp_path, saved, "pt")):
        with torch.no_grad():
            for parameter in model(place, "tied").parameters():
                parameter.zero_()
        found = compared(place, "tied", file)
        assert (found.missing_count, found.unexpected_count) == (0, 0)
        place.do(LoadCheckpoint(target="tied", path=str(file)))
        assert same(values(place, "tied"), saved)
        assert model(place, "tied").get_parameter("2.weight") is model(place, "tied").get_parameter("4.weight")


def test_lazy_parameters_get_the_shape_of_the_file(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="lazy-mlp", device=place.first))
    new = other_mlp()
    outcome = place.do(LoadCheckpoint(target="lazy-mlp", path=str(written(tmp_path, new))))
    assert "4 lazy parameters took the shape of the file" in outcome.answer.words
    assert same(values(place, "lazy-mlp"), new)
    assert place.held(place.first) == sum(value.nbytes for value in new.values())
    place.do(Undo())
    assert not any(row.initialised for row in place.snapshot("lazy-mlp").rows if row.kind == "parameter")
    place.do(Redo())
    place.do(Forward(target="lazy-mlp"))
    assert same(values(place, "lazy-mlp"), new)


class Fails:
    """A file whose third piece cannot be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        real, left = SafeFile.read_into, [5]

        def read(file: SafeFile, at: int, into: memoryview) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise error
            real(file, at, into)

        monkeypatch.setattr(SafeFile, "read_into", read)


@pytest.mark.parametrize(
    "error",
    [BadInput("the disk is gone"), KeyboardInterrupt(), RuntimeError("out of memory"), Cancelled("cancelled")],
    ids=str,
)
def test_a_failure_in_the_middle_leaves_the_model_as_it_was(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    before, undo = values(place, "mlp"), place.workspace.history.state()
    path = written(tmp_path, other_mlp())
    Fails(monkeypatch, error)
    with pytest.raises(type(error)):
        place.do(LoadCheckpoint(target="mlp", path=str(path)))
    assert same(values(place, "mlp"), before)
    assert place.workspace.history.state() == undo


def test_lazy_parameters_wait_again_after_a_failure_and_are_not_made_where_they_would_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place_of("vgpu") as place:
        place.do(BuildModel(recipe="lazy-mlp", device=place.first))
        path = str(written(tmp_path, other_mlp()))
        with monkeypatch.context() as patch:
            Fails(patch, BadInput("the disk is gone"))
            with pytest.raises(BadInput, match="the disk is gone"):
                place.do(LoadCheckpoint(target="lazy-mlp", path=path))
        monkeypatch.setattr(type(place.registry.backend("vgpu:0")), "free_bytes", lambda self, device: 10)
        with pytest.raises(DoesNotFit, match="what the lazy parameters become"):
            place.do(LoadCheckpoint(target="lazy-mlp", path=path))
        assert not any(row.initialised for row in place.snapshot("lazy-mlp").rows if row.kind == "parameter")
        assert place.held(place.first) == 0


def test_reading_goes_in_pieces_so_a_file_may_be_larger_than_memory_and_can_be_cancelled(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devexplorer.core.files.entries.CHUNK_BYTES", 4096)
    place.do(BuildModel(recipe="mlp", device=place.first))
    largest: list[int] = []
    real = SafeFile.pieces

    def pieces(file: SafeFile, entry: entries.TensorEntry) -> Iterator[Tensor]:
        for piece in real(file, entry):
            largest.append(piece.nbytes)
            yield piece

    monkeypatch.setattr(SafeFile, "pieces", pieces)
    new = other_mlp()
    place.do(LoadCheckpoint(target="mlp", path=str(written(tmp_path, new))))
    assert max(largest) == 4096
    assert same(values(place, "mlp"), new)
    asked = iter([False] * 4)
    stops = ProgressMonitor(cancelled=lambda: next(asked, True))
    with pytest.raises(Cancelled, match="the model is unchanged"):
        dispatch(place.workspace, LoadCheckpoint(target="mlp", path=str(written(tmp_path, other_mlp()))), stops)
    assert same(values(place, "mlp"), new)


def test_a_model_over_the_undo_budget_is_loaded_and_still_taken_back_when_reading_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place_of("cpu") as place:
        place.do(BuildModel(recipe="mlp"))
        before = values(place, "mlp")
        new = other_mlp()
        path = written(tmp_path, new)
        monkeypatch.setattr(place.workspace.history, "budget_bytes", 100)
        with monkeypatch.context() as patch:
            Fails(patch, BadInput("the disk is gone"))
            with pytest.raises(BadInput, match="the disk is gone"):
                place.do(LoadCheckpoint(target="mlp", path=str(path)))
        assert same(values(place, "mlp"), before)
        place.do(LoadCheckpoint(target="mlp", path=str(path)))
        assert same(values(place, "mlp"), new)
        assert place.workspace.history.state().title is None


def test_where_old_values_cannot_be_kept_the_file_is_read_through_once_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place_of("cpu") as place:
        place.do(BuildModel(recipe="mlp"))
        before = values(place, "mlp")
        path = written(tmp_path, other_mlp())
        monkeypatch.setattr(place.workspace.history, "budget_bytes", 100)
        monkeypatch.setattr(type(place.registry.backend("cpu")), "free_bytes", lambda self, device: 100)
        with monkeypatch.context() as patch:
            Fails(patch, BadInput("the disk is gone"))
            with pytest.raises(BadInput, match=r"the disk is gone$"):
                place.do(LoadCheckpoint(target="mlp", path=str(path)))
        assert same(values(place, "mlp"), before)
        monkeypatch.setattr(entries.TensorFile, "fill", lambda *given: (_ for _ in ()).throw(RuntimeError("no memory")))
        with pytest.raises(BadInput, match="no memory; 'mlp' has some of the new values"):
            place.do(LoadCheckpoint(target="mlp", path=str(path)))


def test_wrong_targets_are_named(place: Place, tmp_path: Path) -> None:
    path = str(written(tmp_path, {"a": torch.ones(1)}))
    place.workspace.add("x", torch.ones(1))
    place.workspace.add("ghost", nn.Linear(1, 1, device="meta"))
    with pytest.raises(BadInput, match="'x' is a tensor; a checkpoint goes into a model"):
        place.do(LoadCheckpoint(target="x", path=path))
    with pytest.raises(BadInput, match="there is no object 'nobody'"):
        place.do(CompareCheckpoint(target="nobody", path=path))
    ghost = str(written(tmp_path, {"weight": torch.ones(1, 1), "bias": torch.ones(1)}))
    with pytest.raises(BadInput, match="on the device meta"):
        place.do(LoadCheckpoint(target="ghost", path=ghost))
    with pytest.raises(BadInput, match=r"no key of .* is one of 'ghost' with the same shape"):
        place.do(LoadCheckpoint(target="ghost", path=str(written(tmp_path, {"a": torch.ones(1)})), partial=True))


def test_the_code_loads_the_same_values(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="tied", device=place.first, seed=1))
    saved = values(place, "tied")
    place.do(Save(targets=("tied",), path=str(tmp_path / "a.safetensors")))
    place.do(Save(targets=(), path=str(tmp_path / "all.safetensors")))
    torch.save({"model": {f"module.{key}": value for key, value in saved.items()}}, tmp_path / "b.pt")
    broken = {key: value for key, value in saved.items() if key != "0.bias"} | {
        "6.bias": torch.ones(99),
        "more": torch.ones(1),
    }
    torch.save(broken, tmp_path / "c.pt")
    commands = [
        LoadCheckpoint(target="tied", path=str(tmp_path / "a.safetensors")),
        LoadCheckpoint(target="tied", path=str(tmp_path / "all.safetensors")),
        LoadCheckpoint(target="tied", path=str(tmp_path / "b.pt"), strip="module."),
        LoadCheckpoint(target="tied", path=str(tmp_path / "c.pt"), partial=True),
    ]
    place.do(BuildModel(recipe="tied", device=place.first, seed=9, name="twin"))
    for command in commands:
        for name in ("tied", "twin"):
            with torch.no_grad():
                for parameter in model(place, name).parameters():
                    parameter.fill_(7)
        answer = place.do(command).answer
        exec(answer.code, {"tied": model(place, "twin")})
        assert same(values(place, "tied"), values(place, "twin"))
        exec(
            place.answer(CompareCheckpoint(target="tied", path=command.path, strip=command.strip)).code,
            {"tied": model(place, "twin")},
        )
