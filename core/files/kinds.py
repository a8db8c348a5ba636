"""What a file is that the user wants to open: a model's Python, tensors, a recording, a session as Python, … Any
thread; reads a few bytes, of a notebook all of it.

By its first bytes; only Python and notebooks, which are text, also by their names. Nothing of a file is run or
unpickled here.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.base import BadInput, DevExplorerError, count_text
from devexplorer.core.feature import kind_of_head

MODEL, TENSORS, RECORDING, SNAPSHOT, WORKSPACE = "model", "tensors", "recording", "snapshot", "workspace"
SCRIPT = "script"
OUT_OF_MEMORY = "out of memory"
"""A report about a script that ran out of memory."""
SCRIPT_START = b'"""A session of DevExplorer as Python.'
"""How a session that was saved as a script begins."""
CHECKPOINTS = (".pt", ".pth", ".bin", ".ckpt")
"""What torch.save writes, under the names that people give it."""
SNAPSHOTS = (".pickle", ".pkl")
SUFFIXES = (".devexplorer", ".py", ".ipynb", ".safetensors", ".npy", *CHECKPOINTS, ".devrec", *SNAPSHOTS)
"""Of everything that can be opened, for a file dialog."""
OPENED = (
    "a workspace (.devexplorer), a model (.py, .ipynb), tensors (.safetensors, .pt, .npy), a recording (.devrec) or an"
    " allocator snapshot (.pickle)"
)
WORKSPACE_MARK = "devexplorer.workspace"
WORKSPACE_CHECKSUM = f"{WORKSPACE_MARK}.crc32"
"""Where the metadata of a workspace has its manifest, and before it the checksum."""
WORKSPACE_START = b'{"__metadata__":{"' + WORKSPACE_CHECKSUM.encode() + b'":"'
"""How the header of a workspace begins, behind its length."""
ZIP = b"PK\x03\x04"
_NPY, _PICKLE = b"\x93NUMPY", b"\x80"
_TORCH_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How torch.save began before PyTorch 1.6."""
_SNAPSHOT_KEYS = (b"segments", b"device_traces")
WEIGHT_MAP = b'"weight_map"'
"""What the index of a sharded checkpoint has."""
LOOKED_AT = 4096
_LFS = "it is a git-lfs pointer, not the file itself; fetch that with: git lfs pull"
_PAGE = "it is a web page, not a checkpoint: the download gave {}; download it again"
_UNPACK = "it is a {} archive; unpack it and open what is in it"
FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", _LFS),
    (b"<!doctype", _PAGE.format("HTML")),
    (b"<html", _PAGE.format("HTML")),
    (b"<?xml", _PAGE.format("XML, an error of the server perhaps")),
    (b"gguf", "it is a GGUF file; llama.cpp opens it, the package gguf reads its tensors (gguf.GGUFReader)"),
    (b"lmgg", "it is a GGML file, from before GGUF; llama.cpp converts it"),
    (b"\x89hdf\r\n\x1a\n", "it is an HDF5 file (Keras writes such); h5py or keras.models.load_model opens it"),
    (b"\x1f\x8b", _UNPACK.format("gzip")),
    (b"\x28\xb5\x2f\xfd", _UNPACK.format("zstd")),
    (b"\xfd7zxz\0", _UNPACK.format("xz")),
    (b"bzh", _UNPACK.format("bzip2")),
    (b"7z\xbc\xaf\x27\x1c", _UNPACK.format("7z")),
    (b"rar!", _UNPACK.format("RAR")),
    (b"%pdf", "it is a PDF"),
    (b"\x89png", "it is a picture"),
)
"""How files begin that are called what they are, in small letters."""
_ONNX = "it is an ONNX model; onnx.load or onnxruntime opens it, Netron shows it"
_TORCHSCRIPT = "it is a TorchScript archive, which is a program; load it with torch.jit.load where you trust it"
_EXPORTED = "it is a program of torch.export (.pt2); torch.export.load opens it where you trust it"
_NPZ = "it is an archive of NumPy arrays (.npz); numpy.load opens it, and DevExplorer the .npy files in it"


def foreign_format(head: bytes, suffix: str = "") -> str | None:
    """What a file is that others open, and how; None: nothing that is known here. `head`: its first bytes."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:32].lower()
    for begin, words in FOREIGN:
        if start.startswith(begin):
            return words
    if b"joblib.numpy_pickle" in head:
        return "joblib wrote it; joblib.load opens it where you trust it, which runs what it says"
    if suffix == ".index" or suffix.startswith(".data-"):
        return "it is a part of a TensorFlow checkpoint; tf.train.load_checkpoint reads it"
    if suffix == ".pb":
        return "it is a graph of TensorFlow; tf.saved_model.load opens its folder where you trust it"
    if head[4:8] == b"TFL3":
        return "it is a TensorFlow Lite model; its interpreter opens it"
    # a protobuf without a mark of its own: the version of the format, then the name of who wrote it
    if head[:1] == b"\x08" and head[2:3] in b"\x12\x1a\x22\x2a\x32\x3a\x42" and (suffix == ".onnx" or b"onnx" in head):
        return _ONNX
    if head[:1] == b"\x08" and any(name in head[:64] for name in (b"pytorch", b"tf2onnx", b"skl2onnx", b"keras2onnx")):
        return _ONNX
    if head and not head.strip(b"\0"):
        return "it begins with zeros only: the download or the copy did not finish"
    return None


def zip_refusal(names: Collection[str], prefix: str) -> str | None:
    """Why a zip archive with these records is no file of torch.save; None: it can be one."""
    if f"{prefix}/constants.pkl" in names or f"{prefix}/code/__torch__.py" in names:
        return _TORCHSCRIPT
    if f"{prefix}/data.pkl" in names:
        return None
    if any(
        name in names for name in (f"{prefix}/archive_format", "serialized_exported_program.json", "archive_format")
    ):
        return _EXPORTED
    if prefix.endswith(".npy"):
        return _NPZ
    if "model.weights.h5" in names or {"metadata.json", "config.json"} <= set(names):
        return "it is a Keras model; keras.models.load_model opens it where you trust it"
    return "it is a zip archive and no file of torch.save"


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file of this size begins with the length of a header, eight bytes, and the header with a brace."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") + 8 <= size


def is_tar(head: bytes) -> bool:
    """Whether it is a tar archive, as torch.save wrote before PyTorch 0.2."""
    return head[257:262] == b"ustar"


class FileKind(NamedTuple):
    """What a file is, or one line that says why it cannot be opened."""

    path: Path
    kind: str | None
    reason: str = ""


def recognise(path: Path) -> FileKind:
    """What `path` is: a folder can be one checkpoint. Never raises."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            checkpoint_in(path)
            return FileKind(path, TENSORS)
        if not stat.S_ISREG(mode):  # reading a pipe would wait for whoever writes into it
            return FileKind(path, None, f"{path.name} is not a regular file.")
        with path.open("rb") as file:
            head = file.read(LOOKED_AT)
        size = path.stat().st_size
    except BadInput as error:
        return FileKind(path, None, f"{error}.")
    except OSError as error:
        return FileKind(path, None, f"{path.name[:255]} cannot be read: {error.strerror or error}.")
    suffix = path.suffix.lower()
    if not size:
        return FileKind(path, None, f"{path.name} is empty.")
    if suffix == ".ipynb":
        return _notebook(path)
    kind = kind_of_head(head) or _by_content(head, size, suffix)
    if kind is not None:
        return FileKind(path, kind)
    foreign = foreign_format(head, suffix)
    if foreign is None and head.startswith(ZIP):
        foreign = _zip_refusal_of(path)
        if foreign is None:
            return FileKind(path, TENSORS)
    if foreign is not None:
        return FileKind(path, None, f"{path.name} cannot be opened: {foreign}.")
    if suffix in SUFFIXES:
        return FileKind(path, None, f"{path.name} is not what its name says: {_expected(suffix)}")
    return FileKind(path, None, f"{path.name} cannot be opened: DevExplorer opens {OPENED}.")


def _zip_refusal_of(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "it is a zip archive that is damaged or cut off"
    return zip_refusal(names, names[0].partition("/")[0] if names else "")


INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin")
_CHECKPOINT_SUFFIXES = (".safetensors", *CHECKPOINTS, ".tar")
MOST_SHARDS = 512
"""Files that are open at once."""
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")


def checkpoint_in(folder: Path) -> list[Path]:
    """The one checkpoint that a folder holds: a file, an index, or all shards, also those that are missing; `BadInput`
    where it holds none, or several. Raises `OSError`."""
    names = sorted(os.listdir(folder))
    name = folder.name or str(folder)
    for known in (INDEXES[0], _SINGLE[0], INDEXES[1], _SINGLE[1]):
        if known in names:
            return [folder / known]
    indexes = [one for one in names if one.endswith(".index.json")]
    if len(indexes) == 1:
        return [folder / indexes[0]]
    found = [one for one in names if one.lower().endswith(_CHECKPOINT_SUFFIXES)]
    if len(found) == 1 and not _SHARD.fullmatch(found[0]):
        return [folder / found[0]]
    shards = {(match[1], match[3], match[4]) for one in found if (match := _SHARD.fullmatch(one))}
    if len(shards) == 1 and all(map(_SHARD.fullmatch, found)):
        ((stem, count, suffix),) = shards
        return [
            folder / f"{stem}-{number:05}-of-{count}{suffix}" for number in range(1, min(int(count), MOST_SHARDS) + 1)
        ]
    if not found:
        raise BadInput(f"{name} is a folder without a checkpoint; open a file in it")
    some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    raise BadInput(f"{name} is a folder with {count_text(len(found), 'checkpoint')} ({some}); open one of them")


def _notebook(path: Path) -> FileKind:
    from devexplorer.core.isolation import notebook  # when the first one is opened

    try:
        notebook.read(path)
    except DevExplorerError as error:
        return FileKind(path, None, f"{error}.")
    return FileKind(path, MODEL)


def _by_content(head: bytes, size: int, suffix: str) -> str | None:
    if head.startswith(_NPY) or is_tar(head):
        return TENSORS
    if head.startswith(ZIP):
        record = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return TENSORS if record.endswith(b".pkl") or suffix in CHECKPOINTS else None
    if is_safetensors(head, size):
        return WORKSPACE if head[8:].startswith(WORKSPACE_START) else TENSORS  # safetensors
    if head.startswith(b"{") and (WEIGHT_MAP in head or suffix == ".json"):
        return TENSORS if WEIGHT_MAP in head else None
    if head.startswith(_PICKLE):
        snapshot = not head.startswith(_TORCH_MAGIC) and any(key in head for key in _SNAPSHOT_KEYS)
        return SNAPSHOT if snapshot else TENSORS
    if suffix != ".py" or b"\0" in head:
        return None
    return SCRIPT if head.startswith(SCRIPT_START) else MODEL


def _expected(suffix: str) -> str:
    words = {
        ".py": "it is not text.",
        ".devexplorer": "it does not begin as a workspace does.",
        ".safetensors": "it has no safetensors header.",
        ".npy": "it does not begin as a NumPy array does.",
        ".devrec": "it does not begin as a recording does.",
        **dict.fromkeys(CHECKPOINTS, "torch.save did not write it."),
    }
    return words.get(suffix, "it is no pickle.")
