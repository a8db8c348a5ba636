"""Files of tensors: saved tensors load again, on any device, whole or in part, with ties, views and dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from fakes.equality import everything
from places import Place, place_of
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from devexplorer.core.base import BadInput, Cancelled, DoesNotFit, ProgressMonitor
from devexplorer.core.files import entries
from devexplorer.core.files.opening import opened
from devexplorer.core.files.records import FileListed, ListFile, Load, LoadCheckpoint, Save
from devexplorer.core.files.safe_file import DTYPES
from devexplorer.core.models import samples
from devexplorer.core.records import BuildModel, Move, NewTensor, Redo, Remove, SentFrom, Undo


@pytest.fixture(params=["cpu", "vgpu"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_of(request.param) as made:
        yield made


@pytest.fixture
def host() -> Iterator[Place]:
    with place_of("cpu") as made:
        yield made


def tensor(place: Place, name: str) -> Tensor:
    found = place.workspace.get(name)
    assert isinstance(found, Tensor)
    return found


def model(place: Place, name: str) -> nn.Module:
    found = place.workspace.get(name)
    assert isinstance(found, nn.Module)
    return found


def same_values(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return list(mine) == list(theirs) and all(torch.equal(mine[key].cpu(), theirs[key].cpu()) for key in mine)


@pytest.mark.parametrize("form", ["safetensors", "pt"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 5)])
def test_every_dtype_and_shape_comes_back_bit_by_bit(
    place: Place, tmp_path: Path, form: str, shape: tuple[int, ...]
) -> None:
    dtypes = [dtype for dtype in DTYPES.values() if dtype != torch.float8_e8m0fnu and not dtype.is_complex]
    values = {str(dtype).removeprefix("torch."): torch.randint(0, 2, shape).to(dtype) for dtype in dtypes}
    for name, value in values.items():
        place.workspace.add(name, value.to(place.first))
    path = str(tmp_path / f"x.{form}")
    place.do(Save(targets=tuple(values), path=path, form=form))
    place.do(Load(path=path, name="again", device=place.first))
    for name, value in values.items():
        again = tensor(place, f"again.{name}").cpu()
        assert (again.dtype, again.shape) == (value.dtype, value.shape)
        assert torch.equal(again.reshape(-1).view(torch.uint8), value.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("form", ["safetensors", "pt"])
def test_views_and_strides_are_saved_as_what_one_sees(place: Place, tmp_path: Path, form: str) -> None:
    base = torch.arange(10_000.0).reshape(100, 100).to(place.first)
    place.workspace.add("row", base[3])
    place.workspace.add("turned", base.t())
    place.workspace.add("wide", torch.arange(3.0).to(place.first).expand(4, 3))
    place.workspace.add("conj", torch.tensor([1 + 2j], dtype=torch.complex64).conj())
    path = tmp_path / f"views.{form}"
    place.do(Save(targets=("row", "turned", "wide", "conj"), path=str(path), form=form))
    assert path.stat().st_size < 50_000, "a row does not bring the whole matrix along"
    place.do(Load(path=str(path), name="again"))
    assert torch.equal(tensor(place, "again.row"), base[3].cpu())
    assert torch.equal(tensor(place, "again.turned"), base.t().cpu())
    assert torch.equal(tensor(place, "again.wide"), torch.arange(3.0).expand(4, 3))
    assert tensor(place, "again.conj").item() == 1 - 2j


@pytest.mark.parametrize("form", ["safetensors", "pt"])
def test_what_is_one_tensor_is_in_the_file_once_and_is_one_tensor_again(
    place: Place, tmp_path: Path, form: str
) -> None:
    place.do(NewTensor(name="first", fill="rand", shape=(1000,), device=place.first))
    place.workspace.add("second", tensor(place, "first").detach())
    path = tmp_path / f"tied.{form}"
    words = place.answer(Save(targets=("first", "second"), path=str(path), form=form)).words
    assert "second is the very same tensor as first" in words
    assert path.stat().st_size < 6000
    answer = place.answer(Load(path=str(path), name="again", device=place.first))
    assert tensor(place, "again.first") is tensor(place, "again.second")
    assert "two names of one tensor" in answer.words
    place.do(Load(path=str(path), name="alone", entries=("second",)))
    assert torch.equal(tensor(place, "alone"), tensor(place, "first").cpu())


def test_files_of_safetensors_and_torch_itself_open(host: Place, tmp_path: Path) -> None:
    values = {"a": torch.rand(2, 3), "b.weight": torch.arange(4)}
    save_file(values, tmp_path / "one.safetensors")
    torch.save({"values": values, "list": [torch.ones(2), 3], "epoch": 7}, tmp_path / "two.pt")
    host.do(Load(path=str(tmp_path / "one.safetensors")))
    assert torch.equal(tensor(host, "b.weight"), values["b.weight"])
    outcome = host.do(Load(path=str(tmp_path / "two.pt")))
    assert torch.equal(tensor(host, "values.b.weight"), values["b.weight"])
    assert tensor(host, "list.0").tolist() == [1, 1]
    assert "2 of its values are not tensors (list/1, epoch)" in outcome.answer.words


@pytest.mark.parametrize("recipe", [name for name in samples.recipes() if not name.startswith(("vgg", "resnet"))])
def test_every_sample_model_comes_back_from_a_workspace_file(place: Place, tmp_path: Path, recipe: str) -> None:
    place.do(BuildModel(recipe=recipe, device=place.first, seed=5, name="before"))
    path = str(tmp_path / "all.safetensors")
    place.do(Save(targets=(), path=path))
    outcome = place.do(Load(path=path, device=place.first))
    made = outcome.changed[0]
    assert (made.name, made.source) == ("before2", recipe)
    before, after = model(place, "before"), model(place, "before2")
    found = everything(place)
    rows = {path: row for path, (row, _, persistent) in found["before"][0].items() if persistent}
    assert {path: row for path, (row, _, persistent) in found["before2"][0].items() if persistent} == rows
    ties = {path: tie.partition(":")[2] for path, (_, tie, _) in found["before"][0].items()}
    assert {path: tie.partition(":")[2] for path, (_, tie, _) in found["before2"][0].items()} == ties
    sample = [x.to(place.first) for x in samples.find(recipe).sample()]
    if recipe not in ("module-list", "lazy-mlp", "noise-pitfall"):  # the last one draws anew each time, on the CPU
        before.eval(), after.eval()
        if recipe != "list-pitfall":  # its layers are not registered, so they are neither moved nor saved
            assert torch.equal(before(*sample).cpu(), after(*sample).cpu())


def test_a_workspace_file_keeps_dtypes_flags_and_modes(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", dtype="float16", seed=3))
    mlp = model(place, "mlp")
    mlp.get_parameter("0.weight").requires_grad_(False)
    mlp.eval()
    mlp.get_submodule("1").train()
    place.do(NewTensor(fill="rand", shape=(2,), requires_grad=True))
    path = str(tmp_path / "all.safetensors")
    place.do(Save(targets=(), path=path))
    place.do(Load(path=path))
    again = model(place, "mlp2")
    assert again.get_parameter("0.weight").requires_grad is False
    assert again.get_parameter("2.weight").requires_grad is True
    assert again.get_parameter("2.weight").dtype == torch.float16
    assert [part.training for part in again.modules()] == [part.training for part in mlp.modules()]
    assert tensor(place, "x2").requires_grad
    assert place.workspace.extras("mlp2").seed == 3


def test_what_only_code_could_build_comes_as_tensors_or_waits_for_its_model(place: Place, tmp_path: Path) -> None:
    own = nn.Sequential(nn.Linear(2, 3))
    place.workspace.add("own", own)
    path = str(tmp_path / "all.safetensors")
    place.do(NewTensor(fill="ones", shape=(2,)))
    place.do(Save(targets=(), path=path))
    answer = place.answer(Load(path=path))
    assert set(place.workspace.names) == {"own", "x", "x2"}
    assert "which a file never runs" not in answer.words
    assert [offer.label for offer in answer.offers] == ["Load into own"]
    with torch.no_grad():
        own.get_parameter("0.weight").zero_()
    place.do(answer.offers[0].command)
    assert own.get_parameter("0.weight").abs().sum() > 0
    place.do(Remove(names=("own",)))
    answer = place.answer(Load(path=path, entries=("own",)))
    assert "which a file never runs" in answer.words
    assert {"own.0.weight", "own.0.bias"} < set(place.workspace.names)


def test_some_entries_are_loaded_and_named(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp"))
    path = str(tmp_path / "mlp.pt")
    place.do(Save(targets=("mlp",), path=path, form="pt"))
    place.do(Load(path=path, entries=("0.bias",), name="bias"))
    assert torch.equal(tensor(place, "bias"), model(place, "mlp").get_parameter("0.bias"))
    place.do(Load(path=path, entries=("0.bias", "2.bias")))
    there = place.workspace.names
    assert there == ("mlp", "bias", "mlp.0.bias", "mlp.2.bias")
    assert len(place.do(Undo()).removed) == 2
    assert place.workspace.names == ("mlp", "bias")
    place.do(Redo())
    assert place.workspace.names == there
    with pytest.raises(BadInput, match=r"there is no '2\.bais' in the file; did you mean 2\.bias"):
        place.do(Load(path=path, entries=("2.bais",)))
    with pytest.raises(BadInput, match="there is an object named 'bias' already"):
        place.do(Load(path=path, entries=("0.bias",), name="bias"))


def test_saving_changes_nothing_and_adds_no_undo(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="tied", device=place.first))
    before, undo = place.snapshot("tied"), place.workspace.history.state()
    for form in ("safetensors", "pt", "module"):
        place.do(Save(targets=("tied",), path=str(tmp_path / form), form=form))
    assert place.snapshot("tied") == before
    assert place.workspace.history.state() == undo


def test_a_part_or_a_parameter_of_a_model_can_be_saved(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    mlp = model(place, "mlp")
    place.do(Save(targets=("mlp:2",), path=str(tmp_path / "part.safetensors")))
    assert set(load_file(tmp_path / "part.safetensors")) == {"weight", "bias"}
    place.do(Save(targets=("mlp:2.weight", "mlp:0"), path=str(tmp_path / "two.pt"), form="pt"))
    held = torch.load(tmp_path / "two.pt", weights_only=True)
    assert torch.equal(held["mlp:2.weight"], mlp.get_parameter("2.weight").detach().cpu())
    assert set(held["mlp:0"]) == {"weight", "bias"}


def test_a_list_says_what_is_there_and_reads_no_value(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    for form in ("safetensors", "pt"):
        path = str(tmp_path / f"mlp.{form}")
        place.do(Save(targets=("mlp",), path=path, form=form))
        with monkeypatch.context() as patch:
            patch.setattr(torch, "load", None)
            (event,) = place.do(ListFile(path=path)).events
        assert isinstance(event, FileListed)
        contents = event.contents
        assert (contents.form, contents.count) == (form, 4)
        assert {entry.key: entry.shape for entry in contents.entries} == {
            "0.weight": (256, 20), "0.bias": (256,), "2.weight": (10, 256), "2.bias": (10,),
        }  # fmt: skip
        assert sum(entry.bytes for entry in contents.entries) == 4 * (256 * 21 + 10 * 257)
        assert contents.saved_on == (place.first if form == "safetensors" else "cpu")


def test_a_workspace_is_listed_by_its_objects(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(NewTensor(fill="ones", shape=(2, 3), dtype="int32"))
    path = str(tmp_path / "all.safetensors")
    place.do(Save(targets=(), path=path))
    (event,) = place.do(ListFile(path=path)).events
    assert isinstance(event, FileListed)
    assert event.contents.form == "workspace"
    assert [(one.key, one.dtype, one.bytes) for one in event.contents.entries] == [
        ("mlp", "Sequential", 31784),
        ("x", "int32", 24),
    ]
    place.do(Load(path=path, entries=("mlp",)))
    assert place.workspace.names == ("mlp", "x", "mlp2")


def test_an_array_of_numpy_opens_too(place: Place, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.arange(6.0).reshape(2, 3))
    (event,) = place.do(ListFile(path=str(tmp_path / "table.npy"))).events
    assert isinstance(event, FileListed)
    assert (event.contents.form, event.contents.entries[0].shape) == ("npy", (2, 3))
    place.do(Load(path=str(tmp_path / "table.npy"), device=place.first))
    assert tensor(place, "table").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_does_not_fit_is_known_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with place_of("vgpu") as place:
        place.do(NewTensor(fill="ones", shape=(1000,)))
        path = str(tmp_path / "x.safetensors")
        place.do(Save(targets=("x",), path=path))
        monkeypatch.setattr(type(place.registry.backend("vgpu:0")), "free_bytes", lambda self, device: 10)
        before = place.allocated("vgpu:0")
        with pytest.raises(DoesNotFit, match="what is to be loaded needs"):
            place.do(Load(path=path, device="vgpu:0"))
        assert place.allocated("vgpu:0") == before


@pytest.mark.parametrize("form", ["safetensors", "pt"])
def test_large_values_go_in_pieces_with_progress_and_can_be_cancelled(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(entries, "CHUNK_BYTES", 4096)
    values = torch.rand(100, 111)
    place.workspace.add("x", values.to(place.first))
    path = tmp_path / f"x.{form}"
    place.do(Save(targets=("x",), path=str(path), form=form))
    told: list[float] = []
    from devexplorer.core.commands.registry import dispatch

    dispatch(
        place.workspace,
        Load(path=str(path), device=place.first),
        ProgressMonitor(lambda done, text, part="": told.append(done)),
    )
    assert torch.equal(tensor(place, "x2").cpu(), values)
    assert len(told) == 11
    assert told == sorted(told)
    asked = iter([False] * 3)
    stops = ProgressMonitor(cancelled=lambda: next(asked, True))
    with pytest.raises(Cancelled, match="cancelled; nothing was loaded"):
        dispatch(place.workspace, Load(path=str(path), device=place.first), stops)
    assert place.workspace.names == ("x", "x2")
    with pytest.raises(Cancelled, match="cancelled; nothing was written"):
        dispatch(
            place.workspace,
            Save(targets=("x",), path=str(path), form=form, overwrite=True),
            ProgressMonitor(cancelled=lambda: True),
        )
    with opened(str(path)) as file:
        assert [entry.shape for entry in file.entries.values()] == [(100, 111)]
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_the_code_reproduces_the_files(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="tied", device=place.first, seed=2))
    place.do(NewTensor(fill="rand", shape=(3,), device=place.first))
    scope = {"tied": model(place, "tied"), "x": tensor(place, "x")}
    commands = [
        Save(targets=("tied",), path="a.safetensors"),
        Save(targets=("tied",), path="a.pt", form="pt"),
        Save(targets=("x",), path="x.pt", form="pt"),
        Save(targets=("x", "tied"), path="both.pt", form="pt"),
        Save(targets=(), path="all.safetensors"),
        Save(targets=("tied:2.weight",), path="w.safetensors"),
    ]
    for command in commands:
        ours = str(tmp_path / f"ours-{command.path}")
        theirs = str(tmp_path / f"theirs-{command.path}")
        code = place.answer(Save(targets=command.targets, path=ours, form=command.form)).code
        exec(code.replace("ours-", "theirs-"), scope)
        with opened(ours) as one, opened(theirs) as other:
            assert {(k, e.shape, e.dtype) for k, e in one.entries.items()} == {
                (k, e.shape, e.dtype) for k, e in other.entries.items()
            }
        answer = place.answer(Load(path=ours, name=f"n-{command.form}", device=place.first))
        assert not answer.failed
        exec(answer.code, scope)
        exec(place.answer(ListFile(path=ours)).code, scope)
    made = [name for name in place.workspace.names if name.startswith("n-")]
    assert len(made) > 10
    from devexplorer.core.base.python_names import variable

    for name in made:
        bound = scope[variable(name)]
        assert isinstance(bound, Tensor)
        assert torch.equal(bound.cpu(), tensor(place, name).cpu())
        assert bound.device == tensor(place, name).device
    again = scope["tied2"]
    assert isinstance(again, nn.Module)
    assert same_values(again, model(place, "tied2"))
    assert again.get_parameter("2.weight") is again.get_parameter("4.weight")


def test_saved_and_moved_and_loaded_back_is_offered_its_device(tmp_path: Path) -> None:
    with place_of("vgpu") as place:
        place.do(NewTensor(fill="rand", shape=(3,), device="vgpu:1"))
        path = str(tmp_path / "x.safetensors")
        place.do(Save(targets=("x",), path=path))
        answer = place.answer(Load(path=path))
        assert "It was saved on vgpu:1" in answer.words
        assert answer.offers[0].command == Move(targets=("x2",), device="vgpu:1")


def test_a_file_from_a_device_that_is_not_here_loads_and_says_so(
    host: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "x.pt")
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:3")
        torch.save({"x": torch.arange(3)}, path)
    (event,) = host.do(ListFile(path=path)).events
    assert isinstance(event, FileListed)
    assert event.contents.saved_on == "cuda:3"
    answer = host.answer(Load(path=path))
    assert tensor(host, "x").tolist() == [0, 1, 2]
    assert 'It was saved on cuda:3 and is on cpu now. map_location="cpu" put it there.' in answer.words
    assert "fails where there is none of that name" in answer.words
    assert not answer.offers


def test_what_other_programs_say_in_their_metadata_does_no_harm(host: Place, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(2)}, path, metadata={"format": "pt", "author": "a", "other": "a", "note": "no key"})
    (event,) = host.do(ListFile(path=str(path))).events
    assert isinstance(event, FileListed)
    assert {entry.key for entry in event.contents.entries} == {"a", "author", "other"}, (
        "a name that means a key is a tie"
    )


def test_a_file_that_was_sent_is_called_what_it_is_called_where_it_came_from(host: Place, tmp_path: Path) -> None:
    copy = tmp_path / "0f0f.safetensors"  # whatever it holds
    np.save(tmp_path / "copy.npy", np.arange(3.0))
    (tmp_path / "copy.npy").rename(copy)
    sent = SentFrom(machine="laptop", path="/home/me/weights.npy")
    answer = host.answer(Load(path=str(copy), sent_from=sent))
    assert (answer.title, answer.facts[0].value) == ("weights is on cpu", "laptop: /home/me/weights.npy")
    assert host.workspace.history.state().title == "the loading of weights.npy"
    assert "# From laptop: /home/me/weights.npy; put the file beside this script\nweights = " in answer.code
    assert "'weights.npy'" in answer.code or '"weights.npy"' in answer.code
    copy.write_bytes(b"\x93NUMPY and nothing")
    with pytest.raises(BadInput) as refused:
        host.do(Load(path=str(copy), sent_from=sent))
    assert str(refused.value).startswith("'weights.npy' cannot be loaded")
    with pytest.raises(BadInput) as refused:
        host.do(LoadCheckpoint(target="nothing", path=str(copy), sent_from=sent))
    assert str(copy) not in str(refused.value)
