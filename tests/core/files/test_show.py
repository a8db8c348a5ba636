"""`devexplorer show`: the document and its exit codes, for files as people have them."""

from __future__ import annotations

import argparse
import collections
import datetime
import io
import json
import pickle
import struct
import subprocess
import sys
import tarfile
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from devexplorer.core.cli.run import main
from devexplorer.core.files.opening import tensors

STATE = {"0.weight": torch.arange(12.0).view(4, 3), "0.bias": torch.ones(4, dtype=torch.float16)}


@dataclass
class Training:
    """As `training_args.bin` holds one."""

    lr: float = 0.1


class Output:
    def __init__(self, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
        self._captured = capsysbinary

    def document(self, path: Path) -> Any:
        assert main(["show", str(path), "--json"]) == 0, self._captured.readouterr().err
        out = self._captured.readouterr().out
        assert out.count(b"\n") == 1
        made = json.loads(out)
        assert list(made) == ["schema", "format", "tensors", "notes"]
        assert made["schema"] == 1
        return made

    def refusal(self, path: Path) -> str:
        assert main(["show", str(path)]) == 2
        captured = self._captured.readouterr()
        assert captured.out == b""
        line = captured.err.decode()
        assert line.count("\n") == 1
        return line


@pytest.fixture
def output(capsysbinary: pytest.CaptureFixture[bytes]) -> Output:
    return Output(capsysbinary)


def old_tar(path: Path) -> None:
    """As torch.save wrote it before PyTorch 0.2: two tensors that share a storage."""

    class Persistent(pickle.Pickler):
        def persistent_id(self, thing: Any) -> Any:
            return str(thing[1]) if isinstance(thing, tuple) and thing[0] == "tensor" else None

    def pickled(thing: Any) -> bytes:
        return pickle.dumps(thing, protocol=2)

    def about(key: int, view: int) -> bytes:
        return pickled((key, view, torch.FloatTensor))

    values = struct.pack("<q6f", 6, *range(6))
    storages = pickled(1) + pickled((7, "cpu", torch.FloatStorage)) + values + pickled([(8, 7, 4, 2)])
    matrix = about(1, 7) + struct.pack("<ii2q2qq", 2, 0, 2, 2, 2, 1, 0)
    vector = about(2, 8) + struct.pack("<iiqqq", 1, 0, 2, 1, 0)
    named = io.BytesIO()
    Persistent(named, protocol=2).dump({"w": ("tensor", 1), "b": ("tensor", 2), "epoch": 4})
    parts = {"sys_info": pickled({}), "pickle": named.getvalue(), "tensors": pickled(2) + matrix + vector}
    with tarfile.open(path, "w") as archive:
        for name, data in {**parts, "storages": storages}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def test_a_tar_of_old_is_read(tmp_path: Path, output: Output) -> None:
    old_tar(tmp_path / "old.t7")
    found = output.document(tmp_path / "old.t7")
    assert found["tensors"] == [
        {"name": "w", "shape": [2, 2], "dtype": "float32", "bytes": 16},
        {"name": "b", "shape": [2], "dtype": "float32", "bytes": 8},
    ]
    read = tensors(str(tmp_path / "old.t7"))
    assert read["w"].tolist() == [[0, 1], [2, 3]]
    assert read["b"].tolist() == [4, 5]


def writes() -> dict[str, Callable[[Path], object]]:
    numpy = {key: value.numpy() for key, value in STATE.items()}
    return {
        "zip": lambda path: torch.save(STATE, path),
        "before 1.6": lambda path: torch.save(STATE, path, _use_new_zipfile_serialization=False),
        "protocol 4": lambda path: torch.save(STATE, path, pickle_protocol=4),
        "safetensors": lambda path: save_file(STATE, path),
        **{f"pickle {at}": lambda path, p=at: path.write_bytes(pickle.dumps(STATE, p)) for at in range(2, 6)},
        **{f"numpy {at}": lambda path, p=at: path.write_bytes(pickle.dumps(numpy, p)) for at in range(2, 6)},
        "defaultdict": lambda path: torch.save(collections.defaultdict(list, STATE), path),
        "with a deque": lambda path: torch.save({**STATE, "last": collections.deque([1.5], 5)}, path),
        "parameters": lambda path: torch.save({key: nn.Parameter(value) for key, value in STATE.items()}, path),
        "strides": lambda path: torch.save({**STATE, "0.weight": STATE["0.weight"].t().contiguous().t()}, path),
        "with others": lambda path: torch.save(
            {**STATE, "args": argparse.Namespace(lr=1), "best": np.float64(1), "path": Path("x"), "epoch": 3}, path
        ),
    }  # fmt: skip


@pytest.mark.parametrize("form", writes())
@pytest.mark.parametrize("name", ["model_best.pth.tar", "weights", "net.pkl"])
def test_a_state_dict_is_listed_and_read_whatever_its_form_and_name(
    tmp_path: Path, output: Output, form: str, name: str
) -> None:
    path = tmp_path / name
    writes()[form](path)
    found = output.document(path)
    rows = {row["name"]: (row["shape"], row["dtype"], row["bytes"]) for row in found["tensors"]}
    assert rows == {"0.weight": ([4, 3], "float32", 48), "0.bias": ([4], "float16", 8)}
    for key, value in tensors(str(path)).items():
        assert torch.equal(value, STATE[key])
        assert value.dtype == STATE[key].dtype


VALUES: dict[str, Any] = {
    "args": argparse.Namespace(lr=1),
    "when": datetime.datetime(2024, 1, 1),
    "best": np.float32(2),
    "steps": range(3),
    "part": slice(1, 2),
    "options": SimpleNamespace(lr=1),
    "counts": collections.defaultdict(int),
    "classes": np.array(["cat", "dog"]),
    "filled": collections.defaultdict(list, x=[1]),
    "last": collections.deque([1, 2], 2),
}
READ = {"counts", "classes", "filled", "last"}
"""Containers and arrays, of which every part is looked at."""
CANNOT = {"filled", "last"}
"""What torch.load(weights_only=True) does not read, whatever it is allowed."""


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("zipped", [True, False])
def test_what_is_no_tensor_comes_with_the_line_that_reads_it(
    tmp_path: Path, output: Output, what: str, zipped: bool
) -> None:
    path = tmp_path / "a.ckpt"
    made = {"state_dict": STATE, what: VALUES[what], "loops": collections.defaultdict(list)}
    torch.save(made, path, _use_new_zipfile_serialization=zipped)
    found = output.document(path)
    assert {row["name"] for row in found["tensors"]} == {f"state_dict/{key}" for key in STATE}
    assert any(note.startswith(f"{what} (") for note in found["notes"]) == (what not in READ)
    offer = found["notes"][-1].partition("In your own script: ")[2].removesuffix(".")
    assert ("weights_only=False" in offer) == (what in CANNOT)
    if what in CANNOT:
        with pytest.raises(pickle.UnpicklingError), torch.serialization.safe_globals([type(VALUES[what]), list]):
            torch.load(path)
        return
    scope: dict[str, Any] = {"torch": torch, "numpy": np, "types": types}
    exec(offer.replace(": torch.load", ": loaded = torch.load"), {**globals(), **scope}, scope)
    assert np.array_equal(scope["loaded"][what], VALUES[what])


def test_a_whole_model_of_the_old_format_is_not_said_to_open_with_weights_only(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "old.pth"
    torch.save(nn.Linear(2, 2), path, _use_new_zipfile_serialization=False)
    said = output.refusal(path)
    assert "weights_only=False" in said
    assert "safe_globals" not in said


def test_odd_tensors_do_not_refuse_the_others(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "odd.pt"
    with warnings.catch_warnings():  # torch says once that quantisation moves to another package
        warnings.simplefilter("ignore")
        quantised = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
    made = {
        "w": torch.ones(3),
        "sparse": torch.eye(3).to_sparse(),
        "quantised": quantised,
        "expanded": torch.zeros(1).expand(1000),
        "conj": torch.tensor([1 + 2j]).conj(),
        "float8": torch.ones(2).to(torch.float8_e4m3fn),
        (1, 2): torch.ones(1),
        7: torch.ones(1),
        "7": torch.ones(2),
        "": torch.ones(1),
    }
    torch.save(made, path)
    rows = {row["name"]: row for row in output.document(path)["tensors"]}
    assert rows["sparse"] == {"name": "sparse", "shape": [3, 3], "dtype": "float32", "bytes": 60, "kind": "sparse"}
    assert rows["quantised"]["dtype"] == "qint8"
    assert rows["expanded"]["shape"] == [1000]
    assert len(rows) == len(made)
    read = tensors(str(path))
    assert read["expanded"].tolist() == [0] * 1000
    assert read["conj"].tolist() == [1 - 2j]
    assert not read.keys() & {"sparse", "quantised"}


def test_scales_of_mx_formats_are_listed(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "mx.safetensors"
    save_file({"scale": torch.ones(3).to(torch.float8_e8m0fnu)}, path)
    assert output.document(path)["tensors"][0]["dtype"] == "float8_e8m0fnu"


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "sub/a.safetensors", "..\\a", "", "a\0b"])
def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path, output: Output, name: str) -> None:
    save_file(STATE, tmp_path / "secret.safetensors")
    (tmp_path / "m").mkdir()
    index = tmp_path / "m" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"0.weight": name}}))
    assert "no file in its own folder" in output.refusal(index)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "TorchScript": (lambda p: torch.jit.save(torch.jit.script(nn.ReLU()), p), "torch.jit.load"),
    "a whole model": (lambda p: torch.save(nn.Linear(2, 2), p), "torch.nn.modules.linear.Linear"),
    "a dataclass": (lambda p: torch.save(Training(), p), "safe_globals"),
    "a link to nothing": (lambda p: p.symlink_to("nowhere"), "there is no file"),
    "half a file": (lambda p: (torch.save(STATE, p), p.write_bytes(p.read_bytes()[:700])), "cut off"),
    "half an old file": (
        lambda p: (torch.save(STATE, p, _use_new_zipfile_serialization=False), p.write_bytes(p.read_bytes()[:-20])),
        "cut off",
    ),
    "text": (lambda p: p.write_text("hello"), "format is not known"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_what_cannot_be_listed_is_called_what_it_is(tmp_path: Path, output: Output, what: str) -> None:
    make, words = REFUSED[what]
    make(tmp_path / "x.pt")
    assert words in output.refusal(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("model.ckpt.index", b"\0\0\1\0\x08\x0a", "tf.train.load_checkpoint"),
        ("model.ckpt.data-00000-of-00001", b"\x3f\1\2\3" * 9, "tf.train.load_checkpoint"),
        ("saved_model.pb", b"\x08\x01\x12\x8b", "tf.saved_model.load"),
        ("a.joblib", b"\x80\x04cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}b" + bytes(99), "joblib.load"),
    ],
)
def test_files_of_other_libraries_are_named(tmp_path: Path, output: Output, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert words in output.refusal(tmp_path / name)


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path, output: Output) -> None:
    assert "too long" in output.refusal(tmp_path / ("n" * 300))


def test_names_are_exact_in_json_and_harmless_on_a_terminal(tmp_path: Path, capsysbinary: Any) -> None:
    path = tmp_path / "a.safetensors"
    key = "größe\x1b]0;owned\x07\n层"
    save_file({key: torch.ones(1)}, path)
    assert Output(capsysbinary).document(path)["tensors"][0]["name"] == key
    assert main(["show", str(path)]) == 0
    out = capsysbinary.readouterr().out
    assert b"\x1b" not in out
    assert out.count(b"\n") == 2


COUNT = 20_000


def header_of_many(path: Path) -> None:
    parts = [f'"layers.{n}.w":{{"dtype":"F32","shape":[1],"data_offsets":[{4 * n},{4 * n + 4}]}}' for n in range(COUNT)]
    header = ("{" + ",".join(parts) + "}").encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * COUNT))


MANY: dict[str, Callable[[Path], object]] = {
    "safetensors": header_of_many,
    "a storage each": lambda path: torch.save({f"layers.{n}.w": torch.ones(1) for n in range(COUNT)}, path),
    "one storage": lambda path: torch.save(dict(enumerate(torch.ones(COUNT, 2))), path),
}


@pytest.mark.parametrize("form", MANY)
def test_many_tensors_are_small(tmp_path: Path, form: str) -> None:
    """In a process of its own: the memory for them, and no torch.load."""
    path = tmp_path / "many"
    MANY[form](path)
    code = (
        "import resource, sys, torch; from devexplorer.core.files.opening import opened\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with opened(sys.argv[1]) as file: count = len(file.entries)\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    found, kib = map(int, done.stdout.split())
    assert found == COUNT
    assert kib < 30 << 10
