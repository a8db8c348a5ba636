"""Checkpoints: sizes from headers alone, and hostile or broken files in one line."""

import json
import math
import struct

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.planner.serving.served import read_checkpoint


def file_of(tensors):
    """A safetensors file: its header, and zeros for values."""
    header, offset = {}, 0
    for name, (dtype, shape, item) in tensors.items():
        size = item * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + b"\0" * offset


LINEAR = {"a.qweight": ("I32", (8, 16), 4), "a.scales": ("F16", (1, 16), 2), "norm.weight": ("F16", (16,), 2)}


def test_one_file(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(file_of(LINEAR))
    read = read_checkpoint("model.safetensors", str(tmp_path))
    assert (read.nbytes, read.tensors, read.files) == (8 * 16 * 4 + 16 * 2 + 16 * 2, 3, 1)
    assert str(read.dtype) == "torch.float16"
    assert read.scheme is None


def test_a_folder_with_an_index(tmp_path):
    """Files that the index does not name do not count."""
    (tmp_path / "one.safetensors").write_bytes(file_of({"a": ("BF16", (10, 10), 2)}))
    (tmp_path / "two.safetensors").write_bytes(file_of({"b": ("F8_E4M3", (10, 10), 1), "c": ("F32", (3,), 4)}))
    (tmp_path / "other.safetensors").write_bytes(file_of({"d": ("F32", (1000,), 4)}))
    index = {"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"model_type": "llama", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = read_checkpoint(str(tmp_path))
    assert (read.nbytes, read.tensors, read.files) == (200 + 100 + 12, 3, 2)
    assert str(read.dtype) == "torch.bfloat16"
    assert read.scheme is not None
    assert read.scheme.title == "fp8, 8 bits float in blocks of 128x128"


def test_a_folder_without_an_index(tmp_path):
    (tmp_path / "one.safetensors").write_bytes(file_of({"a": ("BF16", (10,), 2)}))
    (tmp_path / "two.safetensors").write_bytes(file_of({"b": ("BF16", (10,), 2)}))
    assert read_checkpoint(str(tmp_path)).nbytes == 40
    (tmp_path / "two.safetensors").write_bytes(file_of({"a": ("BF16", (10,), 2)}))
    with pytest.raises(BadInput, match="'a' is in more than one file"):
        read_checkpoint(str(tmp_path))


def one_line(path):
    with pytest.raises(BadInput) as refused:
        read_checkpoint(str(path))
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"", "is empty"),
        ("model.safetensors", file_of({"a": ("F4", (2,), 1)}), "no dtype here"),
        ("model.safetensors", b"PK\x03\x04" + b"\0" * 100, ""),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "/etc/passwd"}}', "no file in its own folder"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "missing.safetensors"}}', "there is no file"),
    ],
)
def test_hostile_files(tmp_path, name, content, words):
    """tests/core/files has many more."""
    (tmp_path / name).write_bytes(content)
    assert words in one_line(tmp_path)


def test_a_name_of_a_tensor_moves_no_cursor_and_fills_no_screen(tmp_path):
    name = "\x1b[2J" + "a" * 900
    for file in ("one", "two"):
        (tmp_path / f"{file}.safetensors").write_bytes(file_of({name: ("BF16", (10,), 2)}))
    words = one_line(tmp_path)
    assert "is in more than one file" in words
    assert "\x1b" not in words
    assert len(words) < 300


def test_what_is_no_checkpoint(tmp_path):
    assert "is no checkpoint" in one_line("~there-is-no-such-user/weights")
    (tmp_path / "net.py").write_text("raise SystemExit")
    assert "is no checkpoint" in one_line(tmp_path / "net.py")
    assert "there is no .safetensors file" in one_line(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(file_of(LINEAR))
    (tmp_path / "config.json").write_text("{" * 100_000)
    assert "is no JSON" in one_line(tmp_path)
    (tmp_path / "config.json").write_text('{"quantization_config": 3}')
    assert "is no table" in one_line(tmp_path)
