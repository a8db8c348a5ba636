"""What a pickle asks for that is not a tensor: how it is named, and how people open it in their own script. Pure, any
thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from devexplorer.core.files.entries import shown
from devexplorer.core.files.symbols import Tree

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
_OLD = {"builtins.xrange": "range", "builtins.long": "int", "builtins.unicode": "str"}
"""Python 2's names, which protocol 2 keeps."""
_NO_CALLS = {"builtins.range", "builtins.slice", "builtins.object", "types.SimpleNamespace", *_OLD}
"""What calls nothing, in modules that do."""
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
        harmless = name in _NO_CALLS or (module == "builtins" and last in _TYPES)
        if module.partition(".")[0] in _CALLING and not harmless:
            found.append(name)
    return found


def allowing(names: Sequence[str], never: Sequence[str], path: str) -> str:
    """How torch.load is told that it may make these; a warning where that would let the file run anything. `never`:
    what it does not read then either."""
    if bad := calling(names):
        some = ", ".join(shown(name) for name in bad[:_FEW])
        return f"no way is safe, as the file asks for {some}, with which it can run any code; do not load it"
    if never:
        return f"weights_only=True reads no {never[0]}; {_trusting(path)}"
    if len(names) > _ALLOWED or not all(part.isidentifier() for name in names for part in name.split(".")):
        listing = f"torch.serialization.get_unsafe_globals_in_checkpoint({path!r})"
        return f"{listing} lists what torch.serialization.safe_globals has to allow"
    some = ", ".join(map(allowed, names))
    return f"with torch.serialization.safe_globals([{some}]): torch.load({path!r})"


def allowed(name: str) -> str:
    """A name as `safe_globals` takes it: NumPy 2 has moved what files of NumPy 1 ask for."""
    if name.startswith("numpy.core."):
        return f"(numpy._core.{name.removeprefix('numpy.core.')}, {name!r})"
    return _OLD.get(name, name.removeprefix("builtins."))


def unpickling(path: str) -> str:
    """How a file that pickle wrote, and not torch.save, is loaded: torch.load refuses it."""
    return f"only where you trust the file, as it runs whatever that says: pickle.load(open({path!r}, 'rb'))"


def left_out(foreign: Mapping[str, str], way: str) -> str:
    """A sentence about values that are Python objects. `foreign`: key -> class; `way`: that of `allowing`."""
    some = [f"{shown(key)} ({shown(full)})" for key, full in list(foreign.items())[:3]]
    more = f" and {len(foreign) - 3:,} more" if len(foreign) > 3 else ""
    what = "is a Python object" if len(foreign) == 1 else "are Python objects"
    return f"{', '.join(some)}{more} {what}: not read. In your own script: {way}."


def foreign_text(tree: Tree, is_module: bool, path: str, pickled: bool) -> str:
    """Why a pickle that asks for these names is not opened, and what would be right; `pickled`: by pickle alone."""
    bad = dangerous(tree.names)
    asked = bad or tree.beyond_torch or tree.names
    some = ", ".join(shown(name) for name in asked[:_FEW]) + (" and others" if len(asked) > _FEW else "")
    if bad:
        what = "a model with something else in it" if is_module else "something else than tensors"
        why = f"it holds {what}, and loading it would run code: it asks for {some}"
        return f"{why}; nothing in it was executed; do not load it anywhere else either"
    what = "it holds a whole model, not its values" if is_module else "it holds Python objects, not tensors"
    way = unpickling(path) if pickled else allowing(tree.beyond_torch, tree.never, path)
    if not (tree.never or pickled):
        way = f"{way}; {_trusting(path)}"
    return (
        f"{what}, and loading it would run code: it asks for {some}; nothing in it was executed; {RIGHT}; in your own"
        f" script, where you have its classes: {way}"
    )


def _trusting(path: str) -> str:
    return f"only where you trust the file: torch.load({path!r}, weights_only=False) runs whatever it says"
