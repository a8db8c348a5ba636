"""Names of the workspace: which are allowed, how new ones are found, and how they are written in Python; what the name
of a torch function says. Pure functions, any thread."""

from __future__ import annotations

import builtins
import json
import keyword
import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache

from devexplorer.core.base.errors import BadInput

LENGTH_LIMIT = 60
_TAKEN = frozenset(dir(builtins)) | {
    "AutoConfig", "Hops", "TorchFunctionMode", "accelerate", "add_virtual_gpus", "assert_placement_clean", "config",
    "copy", "cpu_seconds", "device", "device_map", "devices", "first_tensor", "importlib", "infer_auto_device_map",
    "load_file", "model", "move_lazily", "nn", "np", "number", "numpy", "os", "path", "random",
    "remove_hook_from_submodules", "safe_open", "safetensors", "sample_inputs", "save_file", "seconds", "spec",
    "statistics", "sys", "time", "torch", "torchvision", "total", "transformers", "tree_leaves", "tree_map",
    "samples", "zoo",
}  # fmt: skip
"""Builtins, and names that generated code imports or assigns."""
_ALLOWED = re.compile(r"[^\W\d_][\w \-.]*")
_HALVES = re.compile("[\ud800-\udfff]")

MOVE_LAZILY_IMPORT = "from devexplorer import move_lazily"
"""The line that code needs which moves a model with lazy parameters to a virtual GPU."""


def object_name(target: str) -> str:
    """The object that a target is, or is a part of: `net:layer.weight` -> `net`."""
    return target.partition(":")[0]


def checked_name(name: str, taken: Collection[str]) -> str:
    """The name, if it can be given to a new object; `BadInput` when not."""
    name = name.strip()
    if len(name) > LENGTH_LIMIT or not _ALLOWED.fullmatch(name):
        raise BadInput(
            f"'{name[:LENGTH_LIMIT]}' cannot be a name; names begin with a letter and hold letters, digits, spaces,"
            f" '_', '-' and '.', {LENGTH_LIMIT} at most"
        )
    for other in taken:
        if variable(other) == variable(name):
            same = "" if other == name else " (in Python both would be the same variable)"
            raise BadInput(f"there is an object named '{other}' already{same}; take another name, or remove it first")
    return name


def unique_name(stem: str, taken: Collection[str]) -> str:
    """The stem itself, or numbered on: `x`, `x2`, `x3`; what ends in a number gets a dash: `resnet18-2`."""
    used = {variable(name) for name in taken}
    if variable(stem) not in used:
        return stem
    numbered = re.fullmatch(r"(.+?)-?\d+", stem)
    if numbered and variable(numbered[1]) in used:  # `x2` next to `x`: the next one is `x3`
        stem = numbered[1]
    dash = "-" if stem[-1].isdigit() else ""
    number = 2
    while variable(f"{stem}{dash}{number}") in used:
        number += 1
    return f"{stem}{dash}{number}"


def suggestion(name: str, known: Collection[str]) -> str:
    """What to say after "there is no …": the nearest names, or all of a few, or how many there are."""
    import difflib  # only for a name that does not exist

    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not known:
        return "there is nothing yet"
    return f"there {'is' if len(known) == 1 else 'are'} {', '.join(list(known)[:12])}"


@lru_cache(maxsize=8192)  # every new name is compared with all that there are
def variable(name: str) -> str:
    """The name as a Python variable: `vgg16-bn` -> `vgg16_bn`, and `torch` -> `torch_`, so that a script keeps what it
    is built of."""
    normal = unicodedata.normalize("NFKC", name)  # as Python does with identifiers
    word = "".join(letter if f"a{letter}".isidentifier() else "_" for letter in normal)
    if not word.isidentifier():
        word = f"_{word}"
    return f"{word}_" if keyword.iskeyword(word) or word in _TAKEN else word


def quoted(text: str) -> str:
    """A Python string literal; escaping keeps whatever stands in a name inside the quotes, and what no file of text
    can hold (bytes of a path that are no UTF-8) in signs that it can."""
    return _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(text, ensure_ascii=False))


def expression(title: str) -> str:
    """A target as Python: `mlp:block 0` -> `mlp.get_submodule("block 0")`, never attribute syntax."""
    name, _, path = title.partition(":")
    return f"{variable(name)}.get_submodule({quoted(path)})" if path else variable(name)


def writes_in_place(name: str) -> bool:
    """Whether a torch function of this name changes its first argument: `add_`, `__iadd__`, `__setitem__`."""
    inside = name.strip("_")
    return (
        inside == "setitem" or (name.startswith("__i") and inside != "invert")
        if name.startswith("__")
        else name.endswith("_")
    )
