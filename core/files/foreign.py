"""What a pickle asks for that is not a tensor: how it is named, and how people open it in their own script. Pure, any
thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from devexplorer.core.files.entries import shown

RIGHT = "save its state_dict() instead: torch.save(model.state_dict(), …), or safetensors"
_DANGEROUS = {
    "os", "posix", "nt", "sys", "subprocess", "importlib", "runpy", "shutil", "socket", "ctypes", "pty", "io", "_io",
    "webbrowser", "pickle", "marshal", "code", "timeit", "pdb", "bdb", "cProfile", "multiprocessing", "asyncio",
}  # fmt: skip
"""Modules that no model needs in its pickle, and that can do anything."""
_BUILTINS = {"eval", "exec", "compile", "__import__", "open", "input", "breakpoint", "globals", "locals", "vars"}
_CALLING = {"operator", "functools", "types", "inspect", "builtins"}
"""Modules whose functions reach any other function: a file that torch.load lets use one of them can run anything."""
_TYPES = {"list", "tuple", "set", "frozenset", "dict", "complex", "bytearray", "bytes", "int", "float", "str", "bool"}
"""What is harmless of `builtins`."""
_FEW = 4
"""Names that a line of text can take."""
_ALLOWED = 8
"""And a line of Python."""


def dangerous(names: Sequence[str]) -> list[str]:
    """The names that only code asks for which does harm."""
    found = []
    for name in names:
        module, _, last = name.rpartition(".")
        if module.partition(".")[0] in _DANGEROUS or (module == "builtins" and last in _BUILTINS):
            found.append(name)
    return found


def calling(names: Sequence[str]) -> list[str]:
    """The names with which a file can call anything, as `getattr`."""
    found = []
    for name in names:
        module, _, last = name.rpartition(".")
        if module.partition(".")[0] in _CALLING and not (module == "builtins" and last in _TYPES):
            found.append(name)
    return found


def allowing(names: Sequence[str], path: str) -> str:
    """How torch.load is told that it may make these; a warning where that would let the file run anything."""
    if bad := calling(names):
        some = ", ".join(shown(name) for name in bad[:_FEW])
        return f"no way is safe, as the file asks for {some}, with which it can run any code; do not load it"
    if len(names) > _ALLOWED or not all(part.isidentifier() for name in names for part in name.split(".")):
        listing = f"torch.serialization.get_unsafe_globals_in_checkpoint({path!r})"
        return f"{listing} lists what torch.serialization.safe_globals has to allow"
    some = ", ".join(map(allowed, names))
    return f"with torch.serialization.safe_globals([{some}]): torch.load({path!r})"


def allowed(name: str) -> str:
    """A name as `safe_globals` takes it: NumPy 2 has moved what files of NumPy 1 ask for."""
    if name.startswith("numpy.core."):
        return f"(numpy._core.{name.removeprefix('numpy.core.')}, {name!r})"
    return name.removeprefix("builtins.")


def left_out(foreign: Mapping[str, str], beyond: Sequence[str], path: str) -> str:
    """A sentence about values that are Python objects. `foreign`: key -> class; `beyond`: all that torch.load has to be
    allowed."""
    some = [f"{shown(key)} ({shown(full)})" for key, full in list(foreign.items())[:3]]
    more = f" and {len(foreign) - 3:,} more" if len(foreign) > 3 else ""
    what = "is a Python object" if len(foreign) == 1 else "are Python objects"
    return f"{', '.join(some)}{more} {what}: not read. In your own script: {allowing(beyond, path)}."


def foreign_text(names: Sequence[str], beyond: Sequence[str], is_module: bool, path: str) -> str:
    """Why a pickle that asks for these names is not opened, and what would be right."""
    bad = dangerous(names)
    asked = bad or beyond or names
    some = ", ".join(shown(name) for name in asked[:_FEW]) + (" and others" if len(asked) > _FEW else "")
    if bad:
        what = "a model with something else in it" if is_module else "something else than tensors"
        why = f"it holds {what}, and loading it would run code: it asks for {some}"
        return f"{why}; nothing in it was executed; do not load it anywhere else either"
    what = "it holds a whole model, not its values" if is_module else "it holds Python objects, not tensors"
    line = f"torch.load({path!r}, weights_only=False) runs whatever it says"
    return (
        f"{what}, and loading it would run code: it asks for {some}; nothing in it was executed; {RIGHT}; in your own"
        f" script, where you have its classes: {allowing(beyond, path)}; only where you trust the file: {line}"
    )
