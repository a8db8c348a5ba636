"""A workspace file gives the workspace back: every path, device, dtype, tie, flag and bit; whatever is wrong with it is
one line."""

from __future__ import annotations

import gc
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.equality import everything
from places import Place, place_of
from torch import nn

from devexplorer.core.base import BadInput, Cancelled, ProgressMonitor
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.files.kinds import WORKSPACE_CHECKSUM, WORKSPACE_MARK, WORKSPACE_START
from devexplorer.core.files.records import Load, OpenModel, OpenWorkspace, RunModelCode, SaveWorkspace, WorkspaceFile
from devexplorer.core.files.workspace_format import UNSET
from devexplorer.core.models import samples
from devexplorer.core.models.builders import StoredModule
from devexplorer.core.models.samples import vision
from devexplorer.core.parameters.records import Initialise, MakeOptimizer, SetTraining, TrainStep
from devexplorer.core.records import BuildModel, Forward, Move, NewTensor, Remove, Undo
from devexplorer.core.virtual.backend import install

pytestmark = pytest.mark.usefixtures("warm_processes")

OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 2)
        self.register_buffer("mask", torch.ones(8), persistent=False)
        print("code runs")

    def forward(self, x):
        return self.last(self.norm(self.first(x)) * self.mask)
"""


@pytest.fixture
def vgpu() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


@pytest.fixture
def host() -> Iterator[Place]:
    with place_of("cpu") as made:
        yield made


def saved_and_opened(place: Place, folder: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """What there was, what there is in a new engine, and what the answer said."""
    before, path = everything(place), str(folder / "w.devexplorer")
    place.do(SaveWorkspace(path=path))
    kind = place.kind
    place.workspace.drop(place.workspace.names)
    place.workspace.history.cannot_undo()  # it would keep what was dropped
    gc.collect()  # a model is in cycles: the largest would be in memory together with what is opened
    with place_of("cpu") as other:
        if kind == "vgpu":
            install().reset()
        words = other.do(OpenWorkspace(path=path)).answer.words
        return before, everything(other), words


@pytest.mark.parametrize("recipe", samples.recipes())
def test_every_sample_model_comes_back(
    vgpu: Place, tmp_path: Path, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vision, "VGG_FEATURES", 64)  # half a gigabyte of them would show no more
    vgpu.do(BuildModel(recipe=recipe, seed=3, device="vgpu:1"))
    name = vgpu.workspace.names[0]
    vgpu.do(SetTraining(target=name, on=False))
    before, after, _ = saved_and_opened(vgpu, tmp_path)
    assert after == before


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "adamw"])
def test_an_optimizer_comes_back_and_goes_on_alike(vgpu: Place, tmp_path: Path, kind: str) -> None:
    vgpu.do(BuildModel(recipe="mlp", name="mlp", device="vgpu:0"))
    vgpu.do(MakeOptimizer(target="mlp", kind=kind))
    vgpu.do(TrainStep(target="mlp"))
    before, path = everything(vgpu), str(tmp_path / "w.devexplorer")
    vgpu.do(SaveWorkspace(path=path))
    stepped = []
    for _ in range(2):
        torch.manual_seed(1)
        vgpu.do(TrainStep(target="mlp"))
        stepped.append(everything(vgpu))
        vgpu.do(OpenWorkspace(path=path, replace=True))
        assert everything(vgpu) == before
    assert stepped[0] == stepped[1]


def test_ties_flags_modes_and_dtypes(vgpu: Place, tmp_path: Path) -> None:
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.Linear(3, 3), shared, nn.BatchNorm1d(3), nn.Conv2d(2, 3, 2))
    model[1].weight = shared.weight
    model[4].to(memory_format=torch.channels_last)
    model[3].eval()
    shared.bias.requires_grad_(False)
    vgpu.workspace.add("net", model)
    model.half()
    vgpu.do(Move(targets=("net:1",), device="vgpu:0"))
    before, after, words = saved_and_opened(vgpu, tmp_path)
    assert after["net"][0] == before["net"][0]
    assert {path: mode for path, (mode, _) in after["net"][1].items()} == {
        path: mode for path, (mode, _) in before["net"][1].items()
    }
    assert "the file does not know what made the model" in words


DTYPES = [
    torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.uint16, torch.bool,
    torch.complex64, torch.complex128, torch.float8_e4m3fnuz,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_tensors_of_every_dtype(host: Place, tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    raw = torch.randint(0, 2, shape).to(dtype)
    host.workspace.add("x", raw)
    before, after, _ = saved_and_opened(host, tmp_path)
    assert after == before


def test_tensors_with_gradients_views_and_shared_memory(host: Place, tmp_path: Path) -> None:
    leaf = torch.tensor([1.0, float("nan"), -0.0], requires_grad=True)
    (leaf * 2).sum().backward()
    host.workspace.add("leaf", leaf)
    host.workspace.add("same", leaf)
    host.workspace.add("turned", torch.arange(6.0).view(2, 3).t())
    host.workspace.add("cut", torch.arange(6.0)[::2])
    host.workspace.add("conj", torch.tensor([1 + 2j]).conj())
    base = torch.arange(3.0)
    host.workspace.add("base", base)
    host.workspace.add("alias", base.detach())
    host.workspace.add("graph", leaf * 3)
    path = str(tmp_path / "w.devexplorer")
    assert "cannot hold the graph that computed graph." in host.do(SaveWorkspace(path=path)).answer.words
    before = everything(host)
    host.do(OpenWorkspace(path=path, replace=True))
    after = everything(host)
    for name in ("leaf", "same", "turned", "base", "alias"):
        assert after[name] == before[name], name
    for name in ("cut", "conj", "graph"):
        assert after[name][0]["bits"] == before[name][0]["bits"]
    host.workspace.tensor_named("base")[0] = 9
    assert host.workspace.tensor_named("alias")[0] == 9


def test_an_own_model_has_its_tensors_until_its_code_may_run(host: Place, tmp_path: Path) -> None:
    (tmp_path / "own_net.py").write_text(OWN)
    ran = tmp_path / "ran"
    host.do(OpenModel(source="own_net.py:Net", folder=str(tmp_path), name="net", inputs="2x4"))
    host.do(MakeOptimizer(target="net", kind="adam"))
    host.do(TrainStep(target="net"))
    before, path = everything(host), str(tmp_path / "w.devexplorer")
    saved = host.do(SaveWorkspace(path=path))
    assert [event.again.code for event in saved.events if isinstance(event, WorkspaceFile)] == [("net",)]
    (tmp_path / "own_net.py").write_text(OWN.replace('print("code runs")', f"open({str(ran)!r}, 'a').close()"))
    with place_of("cpu") as other:
        words = other.do(OpenWorkspace(path=path)).answer.words
        assert "net: the tensors are here, and the code that makes the model has not run" in words
        stored = other.snapshot("net")
        assert stored.stored == ("own_net.py:Net", str(tmp_path))
        assert stored.source is None  # nothing may build it on the way
        rows = everything(other)["net"][0]
        assert rows == before["net"][0]
        refused = other.answer(Forward(target="net"))
        assert refused.failed
        assert "without the code that runs it" in refused.words
        assert not ran.exists()
        again = str(tmp_path / "again.devexplorer")
        other.do(SaveWorkspace(path=again))  # nothing is lost on the way
        other.do(OpenWorkspace(path=again, replace=True))
        other.do(RunModelCode(target="net"))
        assert ran.exists()
        model = other.workspace.get("net")
        assert type(model).__name__ == "Net"
        after = everything(other)
        assert after["net"][0] == before["net"][0]
        assert after["net"][2:] == before["net"][2:]
        other.do(Forward(target="net"))
        other.do(TrainStep(target="net"))
        for _ in ("step", "forward, which counts batches", "code"):
            other.do(Undo())
        assert isinstance(other.workspace.get("net"), StoredModule)
        assert everything(other)["net"][0] == before["net"][0]


def test_an_own_model_that_has_changed_keeps_its_tensors(host: Place, tmp_path: Path) -> None:
    (tmp_path / "own_net.py").write_text(OWN)
    host.do(OpenModel(source="own_net.py:Net", folder=str(tmp_path), name="net"))
    before, path = everything(host), str(tmp_path / "w.devexplorer")
    host.do(SaveWorkspace(path=path))
    (tmp_path / "own_net.py").write_text(OWN.replace("Linear(8, 2)", "Linear(8, 3)"))
    host.do(OpenWorkspace(path=path, replace=True))
    answer = host.answer(RunModelCode(target="net"))
    assert answer.failed
    assert "makes another model now: 'last.weight' is [3, 8] now, and [2, 8] in the file" in answer.words
    assert everything(host)["net"][0] == before["net"][0]


def test_virtual_gpus_that_are_missing_are_added_and_others_are_left_alone(vgpu: Place, tmp_path: Path) -> None:
    vgpu.do(NewTensor(name="t", shape=(2,), device="vgpu:1"))
    path = str(tmp_path / "w.devexplorer")
    vgpu.do(SaveWorkspace(path=path))
    with place_of("vgpu", "NVIDIA A10") as other:
        words = other.do(OpenWorkspace(path=path)).answer.words
        names = [info.name for info in other.registry.infos() if info.simulated]
        assert names == ["NVIDIA A10", "Tesla T4", "Tesla T4"]
        assert str(other.workspace.tensor_named("t").device) in ("vgpu:1", "vgpu:2")
        other.do(OpenWorkspace(path=path, replace=True))
        assert len(other.registry.infos()) == 4
    assert "vgpu:1 (Tesla T4) is not here" in words or "as they were" in words


def test_cards_that_are_missing_are_the_cpu_or_virtual_ones(host: Place, tmp_path: Path) -> None:
    path = tmp_path / "w.devexplorer"
    host.do(NewTensor(name="t", shape=(2,)))
    host.do(SaveWorkspace(path=str(path)))

    def moved(manifest: Any) -> None:
        manifest["devices"].append({"id": "cuda:3", "name": "Tesla V100-SXM2-16GB", "simulated": False})
        manifest["tensors"][0]["device"] = "cuda:3"

    rewritten(path, moved)
    result = host.do(OpenWorkspace(path=str(path), replace=True))
    assert "cuda:3 (Tesla V100-SXM2-16GB) is not here: what was on it is on cpu." in result.answer.words
    assert str(host.workspace.tensor_named("t").device) == "cpu"
    with place_of("vgpu", "Tesla T4"):
        install().reset()
        offered = [offer.command for offer in result.answer.offers]
        assert offered == [OpenWorkspace(path=str(path), replace=True, virtual=True)]
        host.do(offered[0])
        assert str(host.workspace.tensor_named("t").device) == "vgpu:0"
        host.do(Remove(names=("t",)))


def test_opening_replaces_only_when_asked_and_undo_brings_everything_back(host: Place, tmp_path: Path) -> None:
    host.do(NewTensor(name="t", shape=(2,), fill="rand"))
    path = str(tmp_path / "w.devexplorer")
    host.do(SaveWorkspace(path=path, layout='{"span_s": 30}'))
    host.do(Initialise(target="t", rule="zeros"))
    host.do(NewTensor(name="u"))
    before = everything(host)
    refused = host.answer(OpenWorkspace(path=path))
    assert "the workspace holds 2 objects" in refused.words.lower()
    assert everything(host) == before
    result = host.do(refused.offers[0].command)
    assert result.removed == ("u",)
    assert [(e.path, e.layout) for e in result.events if isinstance(e, WorkspaceFile)] == [(path, '{"span_s": 30}')]
    assert host.workspace.names == ("t",)
    host.do(Undo())
    assert everything(host) == before


def test_only_a_copy_belongs_to_another_file(host: Place, tmp_path: Path) -> None:
    host.do(NewTensor(name="t", shape=(2,)))
    path = str(tmp_path / "w.devexplorer")
    assert "It takes 8 B, and 7 B is the most" in host.answer(SaveWorkspace(path=path, most_bytes=7)).words
    host.do(SaveWorkspace(path=path, most_bytes=8, copy_of="/home/work.devexplorer"))
    for copy, owner in ((False, path), (True, "/home/work.devexplorer")):
        result = host.do(OpenWorkspace(path=path, replace=True, copy=copy))
        [event] = [event for event in result.events if isinstance(event, WorkspaceFile)]
        assert (event.path, event.copy, event.again.path) == (owner, copy, path)


def test_saving_is_all_or_nothing(host: Place, tmp_path: Path) -> None:
    host.do(NewTensor(name="t", shape=(2,)))
    path = tmp_path / "w.devexplorer"
    host.do(SaveWorkspace(path=str(path)))
    kept = path.read_bytes()
    refused = host.answer(SaveWorkspace(path=str(path)))
    assert refused.offers[0].command == SaveWorkspace(path=str(path), overwrite=True)
    again = SaveWorkspace(path=str(path), overwrite=True)
    with pytest.raises(Cancelled):
        dispatch(host.workspace, again, ProgressMonitor(lambda *_: None, lambda: True))
    assert path.read_bytes() == kept
    assert os.listdir(tmp_path) == [path.name]
    host.workspace.add("sparse", torch.eye(2).to_sparse())
    words = host.do(SaveWorkspace(path=str(path), overwrite=True)).answer.words
    assert "cannot hold sparse ('sparse' is sparse" in words
    host.do(OpenWorkspace(path=str(path), replace=True))
    assert host.workspace.names == ("t",)


def test_its_values_are_tensors_for_everybody_else(host: Place, tmp_path: Path) -> None:
    host.do(BuildModel(recipe="mlp", name="mlp"))
    path = str(tmp_path / "w.devexplorer")
    host.do(SaveWorkspace(path=path))
    from safetensors.torch import load_file

    state = host.workspace.model("mlp").module.state_dict()
    loaded = load_file(path)
    assert all(torch.equal(loaded[f"mlp/{key}"], value) for key, value in state.items())
    host.do(Load(path=path, entries=(f"mlp/{next(iter(state))}",), name="w"))
    assert torch.equal(host.workspace.tensor_named("w"), next(iter(state.values())))


# --- files that are damaged, newer, hostile


def rewritten(path: Path, change: Callable[[Any], object]) -> None:
    """Change the manifest of a file; its checksum is right again."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header["__metadata__"]
    manifest = json.loads(metadata[WORKSPACE_MARK])
    change(manifest)
    metadata[WORKSPACE_MARK], metadata[WORKSPACE_CHECKSUM] = json.dumps(manifest), UNSET
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    assert text.startswith(WORKSPACE_START)
    whole = struct.pack("<Q", len(text)) + text + data[8 + length :]
    whole = whole.replace(UNSET.encode(), f"{zlib.crc32(whole):08x}".encode(), 1)
    path.write_bytes(whole)


def slots(manifest: Any) -> Any:
    return manifest["objects"][0]["model"]["slots"]


def modules(manifest: Any) -> Any:
    return manifest["objects"][0]["model"]["modules"]


def bomb(manifest: Any) -> None:
    """Each level holds the one below twice: 2^50 paths."""
    rows = [{"path": ""}, {"path": "a"}]
    for level in range(50):
        rows += [{"path": f"b{level}"}]
        below = "a" if level == 0 else f"b{level - 1}"
        rows += [{"path": f"b{level}.x", "same_as": below}, {"path": f"b{level}.y", "same_as": below}]
    manifest["objects"][0]["model"].update(modules=rows, slots=[])


def circle(manifest: Any) -> None:
    manifest["objects"][0]["model"].update(
        modules=[{"path": ""}, {"path": "a"}, {"path": "a.b", "same_as": ""}], slots=[]
    )


def edit(path: str, value: Any) -> Callable[[Any], None]:
    def change(manifest: Any) -> None:
        *outer, last = [int(part) if part.lstrip("-").isdigit() else part for part in path.split(".")]
        for part in outer:
            manifest = manifest[part]
        manifest[last] = value

    return change


HOSTILE: dict[str, tuple[Callable[[Any], object], str]] = {
    "newer": (edit("format", 2), "a newer DevExplorer wrote it, in format 2"),
    "no format": (lambda manifest: manifest.pop("format"), "its manifest is damaged"),
    "other type": (edit("objects", "x"), "its manifest is damaged"),
    "layout": (edit("layout", "x" * 200_000), "its layout is too long"),
    "name": (edit("objects.0.name", "../../etc"), "cannot be a name"),
    "name twice": (lambda manifest: manifest["objects"].append(manifest["objects"][0]), "there is an object named"),
    "object of nothing": (edit("objects.0.model", None), "'mlp' is no object"),
    "tensor": (edit("objects.0.model.slots.0.tensor", 10**6), "names a tensor that is not there"),
    "negative": (edit("objects.0.model.slots.0.tensor", -1), "names a tensor that is not there"),
    "slot": (edit("objects.0.model.slots.0.path", "no.such.module.weight"), "belongs to no module"),
    "slot without a name": (edit("objects.0.model.slots.0.path", ""), "belongs to no module"),
    "slot twice": (lambda manifest: slots(manifest).append(slots(manifest)[0]), "belongs to no module"),
    "buffer": (edit("objects.0.model.slots.0.buffer", True), "is a parameter and a buffer"),
    "bomb": (bomb, "make no tree"),
    "circle": (circle, "make no tree"),
    "no parent": (lambda manifest: modules(manifest).append({"path": "x.y"}), "make no tree"),
    "deep": (lambda manifest: modules(manifest).append({"path": ".".join("x" * 2000)}), "is no model"),
    "seed": (edit("objects.0.model.origin.seed", -1), "is no model"),
    "dtype": (edit("tensors.0.dtype", "load"), "there is no dtype 'load'"),
    "other dtype": (edit("tensors.0.dtype", "int32"), "requires a gradient"),
    "shape": (edit("tensors.0.shape", [1 << 40, 1 << 40]), "more elements than can be counted"),
    "other shape": (edit("tensors.-1.shape", [3]), "have another shape or dtype"),
    "order": (edit("tensors.0.order", [0, 0]), "are in no order"),
    "key": (edit("tensors.0.key", "/etc/passwd"), "there are no values '/etc/passwd'"),
    "no key": (edit("tensors.0.key", ""), "a tensor has no values"),
    "meta": (edit("tensors.0.device", "meta"), "a tensor has no values"),
    "device": (edit("tensors.0.device", "cpu; rm"), "'cpu; rm' is no device"),
    "gradient": (edit("tensors.0.gradient", 2), "does not fit it"),
    "own gradient": (edit("tensors.0.gradient", 0), "does not fit it"),
    "optimizer": (edit("objects.0.model.optimizer.class_name", "Optimizer"), "has no such optimizer"),
    "no group": (edit("objects.0.model.optimizer.groups", []), "has no such optimizer"),
    "group": (edit("objects.0.model.optimizer.groups.0.parameters", [0, 0]), "has a parameter twice"),
    "state": (edit("objects.0.model.optimizer.state.0.tensors.exp_avg", 2), "another shape than its parameter"),
    "setting": (edit("objects.0.model.optimizer.groups.0.options.lr", "os.system"), "its manifest is damaged"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_manifest_that_is_wrong_is_one_line(host: Place, tmp_path: Path, what: str) -> None:
    host.do(BuildModel(recipe="mlp", name="mlp"))
    host.do(MakeOptimizer(target="mlp", kind="adam"))
    host.do(TrainStep(target="mlp"))
    path = tmp_path / "w.devexplorer"
    host.do(SaveWorkspace(path=str(path)))
    rewritten(path, lambda manifest: None)
    host.do(OpenWorkspace(path=str(path), replace=True))  # rewriting alone breaks nothing
    before = everything(host)
    change, words = HOSTILE[what]
    rewritten(path, change)
    answer = host.answer(OpenWorkspace(path=str(path), replace=True))
    assert answer.failed
    assert words in answer.words
    assert "\n" not in answer.words
    assert everything(host) == before


def test_every_flipped_byte_and_every_cut_is_noticed(host: Place, tmp_path: Path) -> None:
    host.do(NewTensor(name="t", shape=(8,), fill="rand"))
    path = tmp_path / "w.devexplorer"
    host.do(SaveWorkspace(path=str(path)))
    data = path.read_bytes()
    for place in [*range(0, len(data), 7), len(data) - 1]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        answer = host.answer(OpenWorkspace(path=str(path), replace=True))
        assert answer.failed, place
        assert "\n" not in answer.words
    for length in (0, 1, 8, 20, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        answer = host.answer(OpenWorkspace(path=str(path), replace=True))
        assert answer.failed, length
        assert "\n" not in answer.words
    assert host.workspace.names == ("t",)


def test_other_files_are_no_workspaces(host: Place, tmp_path: Path) -> None:
    host.do(NewTensor(name="t", shape=(8,)))
    torch.save({"t": torch.ones(2)}, tmp_path / "t.devexplorer")
    assert "is not a workspace" in host.answer(OpenWorkspace(path=str(tmp_path / "t.devexplorer"), replace=True)).words
    assert "is a folder" in host.answer(OpenWorkspace(path=str(tmp_path), replace=True)).words
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in host.answer(OpenWorkspace(path=str(tmp_path / "pipe"), replace=True)).words
    path = str(tmp_path / "w.devexplorer")
    host.do(SaveWorkspace(path=path))
    with pytest.raises(BadInput, match="saved again since"):
        host.do(OpenWorkspace(path=path, replace=True, stamp="0" * 32))
