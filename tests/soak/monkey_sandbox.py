"""A folder that confines all writes of the monkey and everything it starts, with files to open. Main thread, before any
other.

The environment points there (home, XDG folders, temporary files, the current folder), the data segment of every process
is limited, and with Landlock the kernel refuses every write elsewhere, for the engine and its children too: a random
path in a save dialog, or a random Delete in a list of files, does no harm."""

from __future__ import annotations

import ctypes
import json
import os
import resource
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

MOST_BYTES = 3 << 30
"""Allocation limit of a process: a random shape can request all of the machine's memory."""
TOKEN = "DEVEXPLORER_SOAK"
"""Environment variable of everything that is started here."""

_WRITING = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14))
"""Landlock's rights to write, remove, make, move and truncate (linux/landlock.h)."""
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(6, 5)
        self.out = torch.nn.Linear(5, 2)
        self.mask = torch.ones(2)

    def forward(self, x):
        return self.out(torch.relu(self.inside(x))) * self.mask


def make():
    return Net()


def broken():
    raise RuntimeError("this factory always fails")
"""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def enter(folder: Path) -> str:
    """Confine this process to the folder; returns one sentence about the confinement."""
    for name in ("config", "data", "cache", "state", "tmp", "files"):
        (folder / name).mkdir(exist_ok=True)
    os.environ.update(
        HOME=str(folder),
        XDG_CONFIG_HOME=str(folder / "config"),
        XDG_DATA_HOME=str(folder / "data"),
        XDG_CACHE_HOME=str(folder / "cache"),
        XDG_STATE_HOME=str(folder / "state"),
        XDG_RUNTIME_DIR=str(folder / "tmp"),
        TMPDIR=str(folder / "tmp"),
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
    )
    os.environ[TOKEN] = folder.name
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.chdir(folder / "files")
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return (
        "the kernel refuses writes elsewhere"
        if _landlock(folder)
        else "no Landlock here: only the environment points into the folder"
    )


def _landlock(folder: Path) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = _Ruleset(_WRITING)
    rules = libc.syscall(_CREATE, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    if rules < 0:
        return False
    for path, allowed in (
        (folder, _WRITING),
        (Path("/dev"), _WRITE_FILE | _TRUNCATE),
        (Path("/proc"), _WRITE_FILE | _TRUNCATE),
    ):
        beneath = _PathBeneath(allowed, os.open(path, os.O_PATH))
        added = libc.syscall(_ADD_RULE, rules, 1, ctypes.byref(beneath), 0)
        os.close(beneath.parent_fd)
        if added != 0:
            return False
    done = libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and libc.syscall(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return done


def fill(folder: Path) -> list[Path]:
    """Files to open, good and bad ones; creates missing ones again and returns all."""
    files = folder / "files"
    made: list[Path] = []

    def file(name: str) -> Path | None:
        made.append(files / name)
        return None if made[-1].exists() else made[-1]

    if (path := file("net.py")) is not None:
        path.write_text(NET, encoding="utf-8")
    if (path := file("array.npy")) is not None:
        np.save(path, np.arange(12, dtype=np.float32).reshape(3, 4))
    if (path := file("net.safetensors")) is not None:
        shapes = {"inside.weight": (5, 6), "inside.bias": (5,), "out.weight": (2, 5), "out.bias": (2,)}
        save_file({name: np.ones(shape, dtype=np.float32) for name, shape in shapes.items()}, path)
    if (path := file("broken.safetensors")) is not None:
        path.write_bytes(b"\xff" * 64)
    if (path := file("empty.pt")) is not None:
        path.write_bytes(b"")
    if (path := file("config.json")) is not None:
        path.write_text(json.dumps({"model_type": "nothing"}), encoding="utf-8")
    if (path := file("runs.csv")) is not None:
        path.write_text("a,b\n1,2\n", encoding="utf-8")
    if (path := file("words 你好.txt")) is not None:
        path.write_text("no tensors here\n", encoding="utf-8")
    return made
