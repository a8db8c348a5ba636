"""What runs in the process that `devexplorer attach` names, between two instructions of its script: makes devexplorer
importable there, does what `devexplorer.attach` does, and leaves an answer. The script's main thread; the standard
library only until devexplorer is found. The script goes on whatever fails here."""

import _thread
import importlib.util
import json
import os
import sys
import threading
from contextlib import suppress
from types import FrameType

NEEDED = ("msgspec", "numpy", "psutil")
"""What of ours runs in a script needs them, beside torch."""

COMPILES = os.path.join("torch", "_dynamo", "convert_frame.py")


def attach(packages: "dict[str, tuple[str, list[str]]]", answer: str) -> None:
    """Begin to observe this process, and write what became of it: `{}`, `{"problem": …}`, or `{"again": true}` where
    that cannot be at this instruction. `packages`: where DevExplorer is, by their names: `__init__.py`, folders."""
    interrupted = False
    try:
        told = _attached(packages, sys._getframe(2))  # beyond the file that was written for this process
    except KeyboardInterrupt:  # meant for the script, which would never hear of it
        interrupted, told = True, {"problem": "it was interrupted by Ctrl-C meanwhile"}
    except Exception as error:
        told = {"problem": f"{type(error).__name__}: {error}"}
    with suppress(OSError):
        with open(answer + ".new", "w", opener=_for_owner, encoding="utf-8") as file:
            json.dump(told, file)
        os.rename(answer + ".new", answer)
    if interrupted:
        _thread.interrupt_main()


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _attached(packages: "dict[str, tuple[str, list[str]]]", frame: "FrameType | None") -> "dict[str, object]":
    if "torch" not in sys.modules:
        return {"problem": "it has not imported torch; attach when it has"}
    if _is_importing() or _is_amid(frame):
        return {"again": True}
    importlib.invalidate_caches()  # what was installed since it has begun is found
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        return {"problem": f"its Python lacks {names}: '{sys.executable} -m pip install {names}', then attach again"}
    if not _is_importable():
        _bind(packages)
    from devexplorer.core.observe.inside import attach as observe

    observe()
    return {}


def _is_importing() -> bool:
    """Whether part of torch, or of DevExplorer, is only half there."""
    return any(
        getattr(getattr(module, "__spec__", None), "_initializing", False)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in ("torch", "devexplorer")
    )


def _is_amid(frame: "FrameType | None") -> bool:
    """Whether the script is where nothing may come between: within `threading`, for whose lock a thread of ours would
    wait, and this thread for it; or while torch.compile reads its functions, which then would be ours in part."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file == threading.__file__ or file.endswith(COMPILES):
            return True
        frame = frame.f_back
    return False


def _is_importable() -> bool:
    """Whether DevExplorer is installed here; a folder that happens to have its name is not it."""
    if "devexplorer" in sys.modules:
        return True
    spec = importlib.util.find_spec("devexplorer")
    return spec is not None and spec.origin is not None


def _bind(packages: "dict[str, tuple[str, list[str]]]") -> None:
    """Make them importable."""
    found = []
    for name, (file, folders) in packages.items():
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
        assert spec is not None and spec.loader is not None  # noqa: PT018 - for the type checker
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        above, _, own = name.rpartition(".")
        if above:
            setattr(sys.modules[above], own, module)
        found.append((spec.loader, module))
    for loader, module in found:  # they import each other
        loader.exec_module(module)
