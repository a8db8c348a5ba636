"""Code in a file is never run: every command opens payloads that would create a marker, in every form, and no marker
appears."""

from __future__ import annotations

import argparse
import builtins
import collections
import importlib
import os
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from places import Place, place_of
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.files.records import CompareCheckpoint, ListFile, Load, LoadCheckpoint
from devexplorer.core.records import BuildModel


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with place_of("cpu") as made:
        made.do(BuildModel(recipe="mlp"))
        yield made


class Payload:
    """Pickled as a call."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


class Sneaky(nn.Linear):
    """A module whose state is a call."""

    def __init__(self, payload: Payload) -> None:
        super().__init__(2, 2)
        self.payload = payload


def payloads(marker: Path) -> dict[str, Payload]:
    line = f"open({str(marker)!r}, 'w').close()"
    return {
        "system": Payload(os.system, f"touch {marker}"),
        "eval": Payload(eval, line),
        "exec": Payload(exec, line),
        "import": Payload(builtins.__import__, "antigravity"),
        "open": Payload(open, str(marker), "w"),
        "importlib": Payload(importlib.import_module, "antigravity"),
        "getattr": Payload(getattr, os, "system"),
        "mkdir": Payload(Path.touch, marker),
        "counter": Payload(collections.Counter, Payload(eval, line)),  # type: ignore[arg-type]
        "memory": Payload(bytearray, 10**13),
    }


KINDS = ["system", "eval", "exec", "import", "open", "importlib", "counter"]
SHAPES: dict[str, Callable[[Payload], Any]] = {
    "alone": lambda one: one,
    "in a list": lambda one: [torch.ones(2), [one]],
    "in a state dict": lambda one: {"0.weight": torch.ones(2), "0.bias": one},
    "as a key": lambda one: {"model": {"0.weight": torch.ones(2)}, "epoch": (1, one)},
    "in an ordered dict": lambda one: collections.OrderedDict([("0.weight", torch.ones(2)), ("x", one)]),
    "in a module": Sneaky,
}


def never_runs(place: Place, path: Path, marker: Path) -> None:
    before = place.snapshot("mlp")
    for command in (
        ListFile(path=str(path)),
        Load(path=str(path)),
        CompareCheckpoint(target="mlp", path=str(path)),
        LoadCheckpoint(target="mlp", path=str(path)),
        LoadCheckpoint(target="mlp", path=str(path), partial=True),
    ):
        with pytest.raises(BadInput) as error:
            place.do(command)
        assert "\n" not in str(error.value)
        assert not marker.exists()
    assert place.workspace.names == ("mlp",)
    assert place.snapshot("mlp") == before


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_payload_in_a_file_of_torch_does_not_run(
    place: Place, tmp_path: Path, kind: str, shape: str, zipped: bool
) -> None:
    marker, path = tmp_path / "ran", tmp_path / "hostile.pt"
    torch.save(SHAPES[shape](payloads(marker)[kind]), path, _use_new_zipfile_serialization=zipped)
    never_runs(place, path, marker)
    if kind in ("system", "eval"):  # the payload is a real one
        torch.load(path, weights_only=False)
        assert marker.exists()


@pytest.mark.parametrize("kind", ["mkdir", "memory"])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_what_is_only_foreign_is_left_out_and_does_not_run(
    place: Place, tmp_path: Path, kind: str, zipped: bool
) -> None:
    marker, path = tmp_path / "ran", tmp_path / "hostile.pt"
    made = {"w": torch.ones(2), "x": payloads(marker)[kind]}
    torch.save(made, path, _use_new_zipfile_serialization=zipped)
    tracemalloc.start()
    try:
        outcome = place.do(Load(path=str(path)))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert [snapshot.name for snapshot in outcome.changed] == ["w"]
    assert not marker.exists()
    place.workspace.drop(("w",))


@pytest.mark.parametrize("protocol", range(6))
def test_a_bare_pickle_of_any_protocol_does_not_run(place: Place, tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "ran"
    for name in ("hostile.pt", "hostile.safetensors", "hostile.npy"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps({"a": payloads(marker)["system"]}, protocol=protocol))
        never_runs(place, path, marker)
    torch.save({"a": payloads(marker)["system"]}, path, pickle_protocol=max(protocol, 2))
    never_runs(place, path, marker)


TRICKS = {
    "a call of a name on the stack": b"\x80\x02cposix\nsystem\nq\x00h\x00X\x04\x00\x00\x00true\x85R.",
    "an instance": b"\x80\x02(X\x04\x00\x00\x00trueiposix\nsystem\n.",
    "an object of old": b"\x80\x02(cposix\nsystem\nX\x04\x00\x00\x00trueo.",
    "a storage type that is a function": (
        b"\x80\x02(X\x07\x00\x00\x00storagecposix\nsystem\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ."
    ),
    "a name with Storage in it": b"\x80\x02cposix\nFloatStorage\n)R.",
    "a rebuild with a function for a storage": (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(cposix\nsystem\nK\x00K\x01\x85K\x01\x85\x89NtR."
    ),
    "a type that rebuilds through a function": (
        b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(cposix\nsystem\nctorch\nTensor\nX\x01\x00\x00\x00a\x85NtR."
    ),
    "a state for a function": b"\x80\x02cposix\nsystem\n}b.",
    "an extension": b"\x80\x02\x82\x01.",
    "a name behind dots": b"\x80\x02ctorch\nos.system\nX\x04\x00\x00\x00true\x85R.",
    "a call of a value": b"\x80\x02K\x01X\x04\x00\x00\x00true\x85R.",
    "an attribute of a tensor class": b"\x80\x02ctorch\nTensor\nJ\xff\xff\xff\x7f\x85\x81.",
    "another codec": b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_with_the_pickle_machine_do_not_run(
    place: Place, tmp_path: Path, trick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "load", None)
    monkeypatch.setattr(os, "system", None)
    path = tmp_path / "trick.pt"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("archive/data.pkl", TRICKS[trick])
        made.writestr("archive/version", b"3\n")
    never_runs(place, path, tmp_path / "ran")


def test_a_pickle_in_an_array_of_numpy_does_not_run(place: Place, tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    marker, path = tmp_path / "ran", tmp_path / "hostile.npy"
    np.save(path, np.array([payloads(marker)["system"]], dtype=object), allow_pickle=True)
    never_runs(place, path, marker)


@pytest.mark.parametrize("held", [nn.Linear(2, 2), {"weight": torch.ones(2), "args": argparse.Namespace(lr=0.1)}])
def test_what_pickle_wrote_is_not_said_to_be_for_torch_load(place: Place, tmp_path: Path, held: object) -> None:
    path = tmp_path / "net.pkl"
    path.write_bytes(pickle.dumps(held))
    words = place.answer(ListFile(path=str(path))).words
    assert f"only where you trust the file, as it runs whatever that says: pickle.load(open('{path}', 'rb'))" in words
    assert "torch.load" not in words


def test_what_a_file_hangs_on_a_tensor_does_not_matter(place: Place, tmp_path: Path) -> None:
    value = torch.arange(3.0)
    value.detach = value.contiguous = value.copy_ = 7  # type: ignore[method-assign,assignment]
    torch.save({"a": value, "b": nn.Parameter(torch.ones(2))}, tmp_path / "odd.pt")
    outcome = place.do(Load(path=str(tmp_path / "odd.pt")))
    assert place.workspace.tensor_named("a").tolist() == [0, 1, 2]
    assert place.workspace.tensor_named("b").requires_grad
    place.workspace.drop(tuple(snapshot.name for snapshot in outcome.changed))
