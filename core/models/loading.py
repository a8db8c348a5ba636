"""Imports the user's code and calls what they named in it; every failure is one line that names their own line. Jobs
thread, or the main thread of a trial process or of the command line.

torch is imported only when the user's code has done so, or when a model is there to be looked at: a trial of code that
does not even import is over before torch would be.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from devexplorer.core.base import BadInput, suggestion, typed_line
from devexplorer.core.isolation import notebook
from devexplorer.core.isolation.config_file import probable
from devexplorer.core.isolation.model_source import Importable, Source, located

Stamp = tuple[str, int, int]
"""The folder from which a module was imported, and its file's time of change (ns) and size then."""
_STAMP = "__devexplorer_stamp__"
"""An attribute of modules that were imported here; it is gone with them."""
_INSTALLED = ("site-packages", "dist-packages")


class LeftInstead(RuntimeError):
    """The user's code called `os._exit`, which would have ended this process silently."""


def factory_of(source: Source, folder: str) -> Any:
    """Import what the source names, again where files have changed since, and return the factory. Raises `BadInput`."""
    home = source.home(folder)
    _forget_changed(home)
    importlib.invalidate_caches()
    with _importing(home, _beside(source, folder)):
        module = _from_file(source, folder) if source.kind == "file" else _imported(source.place, home)
    factory: Any = module
    for index, part in enumerate(source.factory.split(".")):
        if not hasattr(factory, part):
            public = _offered(module) if index == 0 else []
            hint = _left_out(source, folder, part) or (f"; {suggestion(part, public)}" if public else "")
            raise BadInput(f"the module '{_title(source)}' has no class or function '{source.factory}'{hint}")
        factory = getattr(factory, part)
    _check_factory(source, factory)
    return factory


def _offered(module: ModuleType) -> list[str]:
    """The names in a module that could be meant: what it defines itself, or else everything that is public."""
    public = {name: thing for name, thing in vars(module).items() if not name.startswith("_")}
    own = [
        name
        for name, thing in public.items()
        if callable(thing) and getattr(thing, "__module__", None) == module.__name__
    ]
    return own or list(public)


def _beside(source: Source, folder: str) -> str:
    """The folder of a file in a package that imports what is beside it as a script does; else empty."""
    siblings = source.kind == "file" and source.importable(folder).siblings
    return str(source.file(folder).parent) if siblings else ""


def make(source: Source, factory: Any, folder: str) -> Any:
    """Call the factory with the source's options. Raises `BadInput` when it fails, or gives something else than a
    module."""
    call, home = f"'{source.text.partition('?')[0]}()'", source.home(folder)

    def hint(error: BaseException) -> str:
        if isinstance(error, TypeError) and error.__traceback__ is not None:
            called = error.__traceback__.tb_next is not None and error.__traceback__.tb_next.tb_next is None
            return _missing_arguments(source, folder, factory) if called else ""
        if source.options or not isinstance(error, (ValueError, AssertionError)):
            return _unknown_name(source, folder, error)
        return _without_defaults(source, folder, factory)

    given = source.arguments(folder)
    with _running(f"{call} failed", home, hint), _importing(home, _beside(source, folder)):
        configured = {name: kind() for name, kind in configurations(source, factory).items()}
        model = factory(**configured, **given)
    import torch
    from torch.jit._script import RecursiveScriptModule

    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise BadInput(f"{call} gave the class {model.__name__}, not a model; let it return {model.__name__}(…)")
    if not isinstance(model, torch.nn.Module):
        raise BadInput(f"{call} gave a {_returned(source, model)}")
    if any(
        isinstance(module, RecursiveScriptModule) or "_actual_script_module" in vars(module)
        for module in model.modules()
    ):
        raise BadInput(
            f"{call} returned a TorchScript model, whose parts cannot be inspected or moved separately; use the"
            " original module"
        )
    return model


def configurations(source: Source, factory: Any) -> dict[str, type]:
    """Arguments that were not given and are annotated with a dataclass whose fields all have defaults: `Net(config:
    Config)` is called with `Config()`."""
    try:
        parameters = inspect.signature(factory, eval_str=True).parameters
    except Exception:  # of a builtin; or an annotation, which can be any expression, cannot be evaluated
        return {}
    found: dict[str, type] = {}
    for name, item in parameters.items():
        kind = item.annotation
        if item.default is not item.empty or name in source.options or not isinstance(kind, type):
            continue
        if is_dataclass(kind) and all(_has_default(part) for part in fields(kind)):
            found[name] = kind
    return found


def _has_default(part: Field[Any]) -> bool:
    return not part.init or part.default is not MISSING or part.default_factory is not MISSING


def _returned(source: Source, value: Any) -> str:
    """What a factory returned instead of a model, and how to get the model that is in it."""
    import torch

    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, (tuple, list)):
        items = list(enumerate(value))
    kinds = ", ".join(type(item).__name__ for _, item in items[:4]) + (", …" if len(items) > 4 else "")
    at = next((key for key, item in items if isinstance(item, torch.nn.Module)), None)
    what = f"{type(value).__name__}{f' ({kinds})' if items else ''}"
    if at is None:
        held = [name for name, item in getattr(value, "__dict__", {}).items() if isinstance(item, torch.nn.Module)]
        if not held:
            return f"{what}; a torch.nn.Module is required"
        return f"{what}; write a function that returns the model in it, {source.factory}(…).{held[0]}, and name that"
    return f"{what}; write a function that returns its model alone, {source.factory}(…)[{at!r}], and name that"


def _missing_arguments(source: Source, folder: str, factory: Any) -> str:
    """How to give the arguments that the call lacks, or had and does not take."""
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):  # of a builtin
        return ""
    if any(item.kind is item.VAR_KEYWORD for item in parameters):
        unknown = []
    else:
        unknown = [name for name in source.options if name not in {item.name for item in parameters}]
    if unknown:
        takes = ", ".join(item.name for item in parameters if item.kind is not item.VAR_POSITIONAL) or "no options"
        return f"; it takes {takes}"
    lacking = [item for item in parameters if item.default is item.empty and item.name not in source.options]
    return _as_options(source, folder, lacking)


def _without_defaults(source: Source, folder: str, factory: Any) -> str:
    """The same for arguments that are None unless given: what makes the model may need some of them."""
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):  # of a builtin
        return ""
    return _as_options(source, folder, [item for item in parameters if item.default is None])


def _as_options(source: Source, folder: str, lacking: Sequence[inspect.Parameter]) -> str:
    names = [item.name for item in lacking if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)]
    if not names:
        return ""
    given = [f"{name}={value}" for name, value in source.options.items()]
    for name in names:
        file = probable(name, source.config_folders(folder))
        given.append(f"{name}={file or ('cpu' if name == 'device' else '…')}")
    return (
        f"; give options as in '{source.text.partition('?')[0]}?{'&'.join(given)}', or write a function without"
        " arguments that returns the model, and name that"
    )


@contextmanager
def _running(failed: str, home: str, missing: Callable[[BaseException], str] = lambda error: "") -> Iterator[None]:
    """Around user code: whatever it raises becomes a `BadInput` that names its line; `missing` adds what
    helps."""
    process = os.getpid()
    try:
        yield
    except BaseException as error:
        hint = missing(error)
        raise BadInput(f"{failed}: {error_text(error)}{_where(error, home)}{hint}") from error
    finally:
        if os.getpid() != process:  # the code forked, and this is the child: only the parent goes on
            os._exit(0)


def stamps(home: str) -> dict[str, Stamp]:
    """File -> stamp of every module that was imported from this folder."""
    found: dict[str, Stamp] = {}
    for module in list(sys.modules.values()):
        stamp = getattr(module, "__dict__", {}).get(_STAMP)
        if stamp is not None and stamp[0] == home:
            found[_file(module)] = stamp
    return found


def files_of(source: Source, folder: str) -> dict[str, Stamp]:
    """The same of the source's own module and those that it imports, directly or not; once it was imported."""
    home, file = source.home(folder), str(source.file(folder)) if source.kind == "file" else None
    own = {
        name: module
        for name, module in list(sys.modules.items())
        if (stamp := getattr(module, "__dict__", {}).get(_STAMP)) is not None and stamp[0] == home
    }
    waiting = [name for name, module in own.items() if name == source.place or _file(module) == file]
    found: dict[str, Stamp] = {}
    while waiting:
        module = own[waiting.pop()]
        if _file(module) in found:
            continue
        found[_file(module)] = vars(module)[_STAMP]
        for thing in list(vars(module).values()):
            if isinstance(thing, (ModuleType, FunctionType, type)):
                used = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
                waiting += [used] if used in own else []
    return found | config_stamps(source, folder)


def config_stamps(source: Source, folder: str) -> dict[str, Stamp]:
    """The same of the configuration files among its options."""
    home, found = source.home(folder), dict[str, Stamp]()
    for given in source.config_files:
        file = str(given.find(source.config_folders(folder)))
        if (stamp := _now(file, home)) is not None:
            found[file] = stamp
    return found


def changed(known: dict[str, Stamp]) -> tuple[str, ...]:
    """Those of these files that are not as they were."""
    return tuple(file for file, stamp in known.items() if _now(file, stamp[0]) != stamp)


def as_now(known: dict[str, Stamp]) -> dict[str, Stamp]:
    """The same files as they are now; without those that are gone."""
    now = {file: _now(file, stamp[0]) for file, stamp in known.items()}
    return {file: stamp for file, stamp in now.items() if stamp is not None}


def unchanged(known: dict[str, Stamp]) -> bool:
    """Whether every one of these files is still as it was."""
    return not changed(known)


def error_text(error: BaseException) -> str:
    """`ValueError: first line`. A Ctrl-C on the main thread is the user's own and is raised again."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
    if isinstance(error, LeftInstead):
        return str(error)
    return typed_line(error)


# --- importing


def _imported(name: str, home: str) -> ModuleType:
    with _running(f"the module '{name}' could not be imported", home):
        return importlib.import_module(name)


def _from_file(source: Source, folder: str) -> ModuleType:
    path = source.file(folder)
    if not os.path.isfile(path):
        raise BadInput(f"there is no file {path}")
    name = module_name(path)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    failed = f"the file {path.name} could not be imported"
    where = source.importable(folder)
    if where.module:
        with _running(failed, where.home):
            return _of_package(path, where)
    if source.is_notebook:
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = str(path)
        with _running(failed, str(path.parent), lambda error: _unknown_name(source, folder, error)):
            notebook.run(path, vars(module))
        return module
    with _running(failed, str(path.parent)):
        return _executed(name, importlib.util.spec_from_file_location(name, path))


def _executed(name: str, spec: ModuleSpec | None) -> ModuleType:
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, typing and copy.deepcopy look for a class's module there
    if spec.loader is not None:  # of a folder without __init__.py there is nothing to run
        spec.loader.exec_module(module)
    return module


def _of_package(path: Path, where: Importable) -> ModuleType:
    """A file of a package, under the name that it has there; where another package has the name of its package, under
    one of our own."""
    top, dot, below = where.module.partition(".")
    folder = os.path.join(where.home, top)
    loaded = sys.modules.get(top)
    here = loaded is None or os.path.realpath(folder) in map(os.path.realpath, getattr(loaded, "__path__", ()))
    if top in sys.stdlib_module_names or not here:
        top = f"{top}_of_{''.join(letter if letter.isalnum() else '_' for letter in os.path.basename(where.home))}"
        if top not in sys.modules:
            init = Path(folder, "__init__.py")
            spec = ModuleSpec(top, None, is_package=True)
            if os.path.isfile(init):
                spec = importlib.util.spec_from_file_location(top, init, submodule_search_locations=[folder]) or spec
            spec.submodule_search_locations = [folder]
            _executed(top, spec)
    name = f"{top}{dot}{below}"
    module = None if "." in path.stem else importlib.import_module(name)
    if module is not None and os.path.realpath(str(module.__file__)) == os.path.realpath(path):
        return module
    # its name has a dot, or there is a folder of that name beside it
    package = where.module.count(".") - path.stem.count(".")
    parent = ".".join(name.split(".")[:package])
    importlib.import_module(parent)
    name = f"{parent}.{''.join(letter if letter.isalnum() else '_' for letter in path.stem)}_file"
    known = sys.modules.get(name)
    return known if known is not None else _executed(name, importlib.util.spec_from_file_location(name, path))


def _unknown_name(source: Source, folder: str, error: BaseException) -> str:
    return _left_out(source, folder, error.name or "") if isinstance(error, NameError) else ""


def _left_out(source: Source, folder: str, name: str) -> str:
    """Of a notebook: which cell would have set this name; empty for everything else."""
    why = notebook.read(source.file(folder)).why_missing(name) if source.is_notebook else ""
    return f"; {why}" if why else ""


def module_name(path: Path) -> str:
    """What the module of a file is called: as the file, unless another module has that name."""
    stem = "".join(letter if f"a{letter}".isidentifier() else "_" for letter in path.stem)
    stem += "_notebook" * (path.suffix == notebook.SUFFIX)  # a file of the same name may be beside it
    other = sys.modules.get(stem)
    taken = other is not None and getattr(other, "__file__", None) != str(path)
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != str(path.parent)]
    if taken or stem in sys.builtin_module_names or PathFinder.find_spec(stem, elsewhere) is not None:
        return f"{stem}_of_{''.join(letter if letter.isalnum() else '_' for letter in path.parent.name)}"
    return stem


@contextmanager
def _importing(home: str, beside: str = "") -> Iterator[None]:
    """The folder is importable; new modules of the user are marked, or forgotten again when something goes wrong.

    No `__pycache__` is left in the folder: it would hide an edit within the same second, too.
    """
    before, bytecode = set(sys.modules), sys.dont_write_bytecode
    paths = [home, *filter(None, [beside])]
    sys.path[:0] = paths
    sys.dont_write_bytecode = True
    try:
        yield
    except BaseException:
        for name in [name for name in set(sys.modules) - before if _own(sys.modules[name], home)]:
            del sys.modules[name]
        raise
    finally:
        sys.dont_write_bytecode = bytecode
        for path in paths:
            if path in sys.path:
                sys.path.remove(path)
        for name in set(sys.modules) - before:
            module = sys.modules[name]
            if _own(module, home):
                setattr(module, _STAMP, _now(_file(module), home))


# --- what was imported before


def _now(file: str, home: str) -> Stamp | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return home, status.st_mtime_ns, status.st_size


def _file(module: object) -> str:
    """A module's file, the folder of a package without `__init__.py`; empty for neither."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return file
    folders = getattr(module, "__path__", None)
    return next((folder for folder in folders or () if isinstance(folder, str)), "")


def _own(module: object, home: str) -> bool:
    """Whether a module is the user's: below that folder, and not of an installed package."""
    file = _file(module)
    name = getattr(module, "__name__", "")
    if not file or name.partition(".")[0] == "devexplorer":
        return False
    inside = os.path.abspath(file).startswith(os.path.join(home, ""))
    return inside and not any(part in _INSTALLED for part in Path(file).parts)


def _forget_changed(home: str) -> None:
    """Let modules of the user be imported again when one of them has changed, or when another of that name is nearer
    now."""
    known = {
        name: stamp
        for name, module in list(sys.modules.items())
        if (stamp := getattr(module, "__dict__", {}).get(_STAMP))
    }
    changed = {stamp[0] for name, stamp in known.items() if _now(_file(sys.modules[name]), stamp[0]) != stamp}
    for name, stamp in known.items():
        hidden = stamp[0] != home and located(name.partition(".")[0], home) is not None
        if stamp[0] in changed or hidden:
            del sys.modules[name]


# --- what went wrong


def _title(source: Source) -> str:
    return os.path.basename(source.place) if source.kind == "file" else source.place


def _check_factory(source: Source, factory: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(factory, torch.nn.Module):
        raise BadInput(f"'{source.text}' is already a model; name the class or function that creates it")
    if not callable(factory):
        raise BadInput(
            f"the module '{_title(source)}' has no class or function '{source.factory}': that is a"
            f" {type(factory).__name__} and cannot be called"
        )


def _where(error: BaseException, home: str) -> str:
    """` (net.py, line 12)`: the innermost user line; empty where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({os.path.basename(error.filename)}, line {error.lineno})"
        return "" if error_text(error).endswith(place) else place  # Python says so itself
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = frame.filename
        foreign = file.startswith(("<", _HERE)) or any(part in _INSTALLED for part in Path(file).parts)
        if not foreign and os.path.abspath(file).startswith(os.path.join(home, "")):
            return f" ({os.path.relpath(file, home)}, line {frame.lineno})"
    return ""


_HERE = str(Path(__file__).parents[1]) + os.sep
"""The folder of DevExplorer's core: its lines are not the user's, even where the user's code lies beside it."""
