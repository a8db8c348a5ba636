"""The type of a file from its first bytes and name; unknown files get one line."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from devexplorer.core.files.kinds import MODEL, RECORDING, SNAPSHOT, TENSORS, recognise


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of each kind, written by the usual program."""
    save_file({"w": torch.ones(2)}, tmp_path / "w.safetensors")
    save_file({"w": torch.ones(2)}, tmp_path / "no-extension")
    state = {"w": torch.ones(2)}
    for name in ("model_best.pth.tar", "net.pkl", "weights.th", "anything"):
        torch.save(state, tmp_path / name)
        torch.save(state, tmp_path / f"old-{name}", _use_new_zipfile_serialization=False)
        (tmp_path / f"pickled-{name}").write_bytes(pickle.dumps(state))
    index = {"metadata": {"total_size": 8}, "weight_map": {"w": "w.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "whole").mkdir()
    save_file(state, tmp_path / "whole" / "model.safetensors")
    (tmp_path / "lfs.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    (tmp_path / "page.bin").write_text("<!DOCTYPE html><html></html>")
    (tmp_path / "m.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(64))
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08\x12\x07pytorch" + bytes(64))
    records = {
        "net.jit": ("net/code/__torch__.py", "net/data.pkl", "net/constants.pkl"),
        "order.model": ("net/version", "net/data.pkl"),
        "notes.zip": ("readme.txt",),
    }
    for name, names in records.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for one in names:
                archive.writestr(one, b"")
    (tmp_path / "half.zip").write_bytes((tmp_path / "notes.zip").read_bytes()[:-9])
    (tmp_path / "zeros.ckpt").write_bytes(bytes(5000))
    torch.save({"w": torch.ones(2)}, tmp_path / "new.pt")
    torch.save({"w": torch.ones(2)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    np.save(tmp_path / "a.npy", np.ones(3))
    np.savez(tmp_path / "several.npz", a=np.ones(3))
    pytest.importorskip("fakes.recordings").write(tmp_path / "run.devrec", 5)
    (tmp_path / "snapshot.pickle").write_bytes(b"\x80\x04}\x8c\x08segments]s.")
    (tmp_path / "Nets.PY").write_text("def make(): ...\n")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "wrong.safetensors").write_bytes(b"\xff" * 100)
    (tmp_path / "wrong.npy").write_text("1, 2, 3")
    (tmp_path / "picture.py").write_bytes(b"\x89PNG\r\n\0\0\0")
    (tmp_path / "a folder").mkdir()
    os.mkfifo(tmp_path / "pipe.pt")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("w.safetensors", TENSORS), ("no-extension", TENSORS), ("new.pt", TENSORS), ("old.pth", TENSORS), ("a.npy",
                                                                                                           TENSORS),
        *((f"{age}{name}", TENSORS) for age in ("", "old-", "pickled-") for name in
          ("model_best.pth.tar", "net.pkl", "weights.th", "anything")),
        ("model.safetensors.index.json", TENSORS), ("whole", TENSORS), ("order.model", TENSORS),
        ("run.devrec", RECORDING), ("snapshot.pickle", SNAPSHOT), ("Nets.PY", MODEL),
    ],
)  # fmt: skip
def test_a_file_is_recognised(folder: Path, name: str, kind: str) -> None:
    assert recognise(folder / name) == (folder / name, kind, "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("several.npz", "several.npz cannot be opened: it is an archive of NumPy arrays (.npz); numpy.load opens it"),
        ("notes.txt", "notes.txt cannot be opened"),
        ("lfs.pt", "a git-lfs pointer, not the file itself; fetch that with: git lfs pull"),
        ("page.bin", "it is a web page"), ("m.gguf", "a GGUF file; llama.cpp opens it"),
        ("m.onnx", "an ONNX model; onnx.load"), ("zeros.ckpt", "zeros only"), ("empty.pt", "empty.pt is empty."),
        ("wrong.safetensors", "is not what its name says: it has no safetensors header."),
        ("wrong.npy", "it does not begin as a NumPy array does."), ("picture.py", "it is a picture."),
        ("net.jit", "it is a TorchScript archive, which is a program; load it with torch.jit.load"),
        ("notes.zip", "it is a zip archive and no file of torch.save"), ("half.zip", "damaged or cut off"),
        ("a folder", "a folder without a checkpoint"),
        ("missing.pt", "missing.pt cannot be read: No such file or directory."),
        ("pipe.pt", "pipe.pt is not a regular file."),
    ],
)  # fmt: skip
def test_what_cannot_be_opened_says_why_in_one_line(folder: Path, name: str, words: str) -> None:
    found = recognise(folder / name)
    assert found.kind is None
    assert words in found.reason
    assert "\n" not in found.reason
