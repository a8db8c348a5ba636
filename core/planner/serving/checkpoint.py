"""How large the weights of a checkpoint are: from the headers of its safetensors files, of which nothing else is read.
In the planner's process."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from devexplorer.core.base import BadInput, printable
from devexplorer.core.files.kinds import INDEXES
from devexplorer.core.files.opening import opened
from devexplorer.core.files.sharded import read_index
from devexplorer.core.planner.serving.quantisation import Scheme, scheme

SUFFIX = ".safetensors"
JSON_LIMIT = 64 << 20
"""Bytes of a configuration."""
ACTIVATIONS = (torch.float16, torch.bfloat16, torch.float32)
"""dtypes that a model can compute in."""


@dataclass(frozen=True)
class Checkpoint:
    """What the headers say."""

    path: str
    nbytes: int
    """Of all tensors."""
    tensors: int
    files: int
    dtype: torch.dtype | None
    """That most of the weights have which are not quantised; None: there are none."""
    scheme: Scheme | None
    """As the configuration beside it says; None where there is none, or it says nothing."""


def read_checkpoint(path: str, folder: str = "") -> Checkpoint:
    """Read the headers of a file, or of all files of a folder. Raises `BadInput` in one line."""
    place = Path(folder or ".") / os.path.expanduser(path)  # `Path.expanduser` raises where there is no such user
    files = _files(path, place) if os.path.isdir(place) else [place]
    if not os.path.isdir(place) and place.suffix != SUFFIX:
        raise BadInput(f"'{path}' is no checkpoint; choose a {SUFFIX} file, or a folder with such files")
    sizes: Counter[torch.dtype] = Counter()
    names: set[str] = set()
    for file in files:
        with opened(str(file)) as header:
            if header.form != "safetensors":
                raise BadInput(f"'{file}' has no safetensors header")
            for key, entry in header.entries.items():
                if key in names:
                    raise BadInput(f"'{printable(key[:80])}' is in more than one file of '{path}'")
                names.add(key)
                if entry.same_as is None:
                    sizes[entry.dtype] += entry.nbytes
    computes = [dtype for dtype in ACTIVATIONS if sizes[dtype]]
    return Checkpoint(
        path,
        sum(sizes.values()),
        len(names),
        len(files),
        max(computes, key=lambda dtype: sizes[dtype], default=None),
        configured(place if os.path.isdir(place) else place.parent, path),
    )


def configured(folder: Path, path: str) -> Scheme | None:
    """What the configuration in a folder says about quantisation."""
    file = folder / "config.json"
    return quantisation_of(file, path) if os.path.isfile(file) else None


def quantisation_of(file: Path, name: str) -> Scheme | None:
    """What a configuration says about quantisation; None: nothing."""
    content = _json(file, name)
    config = content.get("quantization_config")
    if config is None:
        return None
    if not isinstance(config, dict):
        raise BadInput(f"the quantization_config of '{name}' is no table")
    return scheme(config, f"'{name}'")


def _files(path: str, place: Path) -> list[Path]:
    index = place / INDEXES[0]
    if os.path.isfile(index):
        try:
            return read_index(f"{path}/{INDEXES[0]}", index)[0]
        except OSError as error:
            raise BadInput(f"'{index}' could not be read: {(error.strerror or str(error)).lower()}") from error
    found = sorted(place.glob(f"*{SUFFIX}"))
    if not found:
        raise BadInput(f"there is no {SUFFIX} file in '{path}'")
    return found


def _json(file: Path, name: str) -> Mapping[str, Any]:
    try:
        if file.stat().st_size > JSON_LIMIT:
            raise BadInput(f"'{name}' is larger than {JSON_LIMIT >> 20} MiB, which no configuration is")
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"'{name}' could not be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"'{name}' is no JSON: {type(error).__name__}") from error
    if not isinstance(content, dict):
        raise BadInput(f"'{name}' is no table")
    return content
