"""What a file is that the user wants to open: a model's Python, tensors, a recording, a session as Python, … Any
thread; reads a few bytes, of a notebook all of it.

By its first bytes where those say it, by its name where they do not: every pickle looks alike. Nothing of a file is run
or unpickled here.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.base import DevExplorerError

MODEL, TENSORS, RECORDING, SNAPSHOT, WORKSPACE = "model", "tensors", "recording", "snapshot", "workspace"
SCRIPT = "script"
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
_NPY, _ZIP, _PICKLE = b"\x93NUMPY", b"PK\x03\x04", b"\x80"
_HEADER = 9
"""A safetensors file begins with the length of its header, eight bytes, and the header with a brace."""


class FileKind(NamedTuple):
    """What a file is, or one line that says why it cannot be opened."""

    path: Path
    kind: str | None
    reason: str = ""


def recognise(path: Path) -> FileKind:
    """What `path` is; never raises."""
    from devexplorer.core.recording.format import MAGIC  # its decoders take longer to make than the rest of this takes

    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return FileKind(path, None, f"{path.name} is a folder: open a file in it.")
        if not stat.S_ISREG(mode):  # reading a pipe would wait for whoever writes into it
            return FileKind(path, None, f"{path.name} is not a regular file.")
        with path.open("rb") as file:
            head = file.read(max(8 + len(WORKSPACE_START), len(MAGIC), len(SCRIPT_START)))
        size = path.stat().st_size
    except OSError as error:
        return FileKind(path, None, f"{path.name} cannot be read: {error.strerror or error}.")
    suffix = path.suffix.lower()
    if not size:
        return FileKind(path, None, f"{path.name} is empty.")
    if suffix == ".ipynb":
        return _notebook(path)
    kind = RECORDING if head.startswith(MAGIC) else _by_content(head, size, suffix)
    if kind is not None:
        return FileKind(path, kind)
    if suffix in SUFFIXES:
        return FileKind(path, None, f"{path.name} is not what its name says: {_expected(suffix)}")
    return FileKind(path, None, f"{path.name} cannot be opened: DevExplorer opens {OPENED}.")


def _notebook(path: Path) -> FileKind:
    from devexplorer.core.isolation import notebook  # when the first one is opened

    try:
        notebook.read(path)
    except DevExplorerError as error:
        return FileKind(path, None, f"{error}.")
    return FileKind(path, MODEL)


def _by_content(head: bytes, size: int, suffix: str) -> str | None:
    if head.startswith(_NPY):
        return TENSORS
    if head.startswith(_ZIP):
        return TENSORS if suffix in CHECKPOINTS else None
    if len(head) >= _HEADER and head[8:9] == b"{" and int.from_bytes(head[:8], "little") + 8 <= size:
        return WORKSPACE if head[8:].startswith(WORKSPACE_START) else TENSORS  # safetensors
    if head.startswith(_PICKLE):
        return TENSORS if suffix in CHECKPOINTS else SNAPSHOT if suffix in SNAPSHOTS else None
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
