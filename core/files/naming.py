"""Names in the workspace for the tensors of a file: their keys, as far as those can be names. Pure, jobs thread."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from devexplorer.core.base import python_names

_FORBIDDEN = re.compile(r"[^\w \-.]+")


def stem_of(path: str) -> str:
    """The file's name as the beginning of a name."""
    return _clean(Path(path).name.partition(".")[0]) or "tensor"


def name_for(key: str, prefix: str | None, path: str, taken: Collection[str]) -> str:
    """A new name for the tensor with this key: after `prefix`, or after the file's name where the key alone cannot be
    one."""
    own = _FORBIDDEN.sub(".", key).strip(" .-")
    whole = f"{prefix}.{own}" if prefix else own
    if not _clean(whole) or _clean(whole) != whole:
        whole = f"{prefix or stem_of(path)}.{own}" if own else stem_of(path)
    limit = python_names.LENGTH_LIMIT - 6  # room for the number that makes it unique
    if len(whole) > limit:
        whole = _clean(whole[-limit:]) or "tensor"
    return python_names.unique_name(whole.rstrip(" .-") or "tensor", taken)


def _clean(text: str) -> str:
    """Without what cannot stand in a name, and begun by a letter."""
    return re.sub(r"^[\W\d_]+", "", _FORBIDDEN.sub(".", text)).strip()
