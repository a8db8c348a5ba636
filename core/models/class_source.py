"""What the source of a class says: where it sets an attribute, and with what; what its forward may run; what cuts a
parameter off from autograd. Any thread.

The source is read, never executed. Each file is parsed once: those of libraries are long.

`.data` and `.detach()` give values without history, `torch.no_grad()` and
`torch.inference_mode()` let nothing have one: whatever is computed from there on does not depend on the parameters any
more, as far as autograd knows.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import types
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple

from torch import nn

from devexplorer.core.isolation.source_location import SourceLocation, kind_of
from devexplorer.core.models.walk import is_uninitialised

SWITCHES = ("no_grad", "inference_mode")
_REGISTERS = ("register_buffer", "register_parameter", "register_module", "add_module")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Stamp = tuple[int, int]


def tree_of(file: str) -> ast.Module | None:
    """The tree of a file as it is now; None where it cannot be read or is no Python."""
    return _parsed(file, stamp_of(file))


def stamp_of(file: str) -> Stamp:
    """Another one when the file has changed: for the keys of caches."""
    known = linecache.cache.get(file, ())
    if len(known) == 4 and known[1] is None:  # not what is on the disk: a cell of a notebook, a fix that is tried
        return 0, hash(tuple(known[2]))
    try:
        status = os.stat(file)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _parsed(file: str, stamp: Stamp) -> ast.Module | None:
    linecache.checkcache(file)
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def expressions_at(body: ast.AST, line: int) -> Iterator[ast.expr]:
    """Those within a node that are on the line, also where they go over several."""
    for node in ast.walk(body):
        if isinstance(node, ast.expr) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield node


def last_name(node: ast.expr) -> str:
    """`append` of `self.items.append`; the name of a name; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_switch(node: ast.expr) -> bool:
    """`torch.no_grad()`, `torch.inference_mode`, also as a decorator."""
    return last_name(node.func if isinstance(node, ast.Call) else node) in SWITCHES


class Assigned(NamedTuple):
    """A line that sets an attribute."""

    place: SourceLocation
    value: ast.expr | None
    """What it is set to, where the line says so."""


class ClassSource(NamedTuple):
    """The syntax tree of a class; its line numbers are those of the file."""

    file: str
    library: bool
    tree: ast.ClassDef


def class_source(kind: type) -> ClassSource | None:
    """The source of a class of the user or a library; None where there is none, and for classes of torch and
    Python."""
    if kind.__module__.partition(".")[0] in ("torch", "builtins"):
        return None
    file = file_of(kind)
    where = "skipped" if file is None else kind_of(file)
    if file is None or where == "skipped":
        return None
    tree = _classes(file, stamp_of(file)).get(kind.__qualname__)
    return None if tree is None else ClassSource(os.path.abspath(file), where == "library", tree)


def file_of(kind: type) -> str | None:
    """The file of a class: as its methods say, or else its module; None where it is unknown."""
    for value in vars(kind).values():
        function = value.__func__ if type(value) in (staticmethod, classmethod) else value
        if type(function) is types.FunctionType and function.__qualname__.startswith(f"{kind.__qualname__}."):
            file = function.__code__.co_filename
            if kind_of(file) != "skipped":  # the methods that `dataclass` writes have no file, or its own
                return file
    module = sys.modules.get(kind.__module__)
    named = None if module is None else vars(module).get("__file__")
    return named if isinstance(named, str) else None


@lru_cache(maxsize=64)
def _classes(file: str, stamp: Stamp) -> dict[str, ast.ClassDef]:
    """Every class in a file by its qualified name."""
    tree = tree_of(file)
    waiting: list[tuple[str, ast.AST]] = [] if tree is None else [("", tree)]
    found: dict[str, ast.ClassDef] = {}
    while waiting:
        prefix, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found[prefix + child.name] = child
                waiting.append((f"{prefix}{child.name}.", child))
            elif isinstance(child, Function):
                waiting.append((f"{prefix}{child.name}.<locals>.", child))
            elif isinstance(child, ast.stmt | ast.ExceptHandler):
                waiting.append((prefix, child))
    return found


def functions_of(source: ClassSource) -> dict[str, Function]:
    """The methods that a class defines, by name."""
    return {node.name: node for node in source.tree.body if isinstance(node, Function)}


def reached_methods(kind: type) -> Iterator[tuple[ClassSource, Function, str]]:
    """`forward`, every method that it reads from its object, and so on, those of the bases too; each with what it calls
    its object."""
    sources = [source for base in type.mro(kind) if (source := class_source(base)) is not None]
    waiting, known = ["forward"], {"forward"}
    while waiting:
        name = waiting.pop()
        for source in sources:
            function = functions_of(source).get(name)
            first = None if function is None else self_name(function)
            if function is None or first is None:
                continue
            yield source, function, first
            for node in ast.walk(function):
                inner = own_attribute(node, first)
                if inner is not None and inner not in known:
                    known.add(inner)
                    waiting.append(inner)


def assigned(kind: type, name: str) -> SourceLocation | None:
    """The line that sets this attribute: the last one of `__init__`, else the first one elsewhere; bases are read as
    well."""
    for base in type.mro(kind):
        source = class_source(base)
        if source is None:
            continue
        found = [item for item in assignments(source) if item[0] == name]
        in_init = [item for _, item in found if item.place.function == "__init__"]
        if found:
            return (in_init[-1] if in_init else found[0][1]).place
    return None


_CHANGES = frozenset({
    "add", "append", "appendleft", "copy_", "extend", "insert", "put", "setdefault", "update", "__setitem__",
})  # fmt: skip
"""Methods of containers that put something in."""


def changed_in(kind: type, name: str) -> SourceLocation | None:
    """The line outside of `__init__` that sets this attribute to something that is not written there, or puts something
    into what it holds."""
    for source, function, first in methods(kind):
        nodes = [node for node in ast.walk(function) if isinstance(node, (ast.stmt, ast.Call))]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            if function.name != "__init__" and _changes(node, first, name):
                return SourceLocation(source.file, node.lineno, function.name, source.library)
    return None


def reads(kind: type, name: str) -> bool:
    """Whether `forward`, or what it calls of its object, reads this attribute."""
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and own_attribute(node, first) == name
        for _, function, first in reached_methods(kind)
        for node in ast.walk(function)
    )


def set_elsewhere(kind: type, name: str) -> str | None:
    """The method, neither `__init__` nor run by `forward`, that sets this attribute: `reset`; None: there is none."""
    reached = {function.name for _, function, _ in reached_methods(kind)} | {"__init__"}
    for source, _, _ in methods(kind):
        for attribute, found in assignments(source):
            if attribute == name and found.place.function not in reached and found.place.function != source.tree.name:
                return found.place.function
    return None


def assigned_in(kind: type) -> Iterator[tuple[str, Assigned]]:
    """Every attribute that a class and its bases set on themselves."""
    for base in type.mro(kind):
        source = class_source(base)
        if source is not None:
            yield from assignments(source)


def methods(kind: type) -> Iterator[tuple[ClassSource, Function, str]]:
    """Those of a class and its bases, each with what it calls its object."""
    for base in type.mro(kind):
        source = class_source(base)
        for function in {} if source is None else functions_of(source).values():
            first = self_name(function)
            if source is not None and first is not None:
                yield source, function, first


def filled_at(kind: type, name: str) -> list[SourceLocation]:
    """The lines by which a class puts something into the container that an attribute is, in their order."""
    return [
        _at(source, node, function.name, None).place
        for source, function, first in methods(kind)
        for node in ast.walk(function)
        if isinstance(node, (ast.stmt, ast.Call))
        and _changes(node, first, name)
        and not _sets_itself(node, first, name)
    ]


def _sets_itself(node: ast.stmt | ast.Call, first: str, name: str) -> bool:
    """Whether it is `self.name = …` rather than `self.name[key] = …`."""
    targets = [] if isinstance(node, ast.Call) else [target for target, _ in _assigned_by(node)]
    return any(own_attribute(target, first) == name for target in targets)


def _changes(node: ast.stmt | ast.Call, first: str, name: str) -> bool:
    if isinstance(node, ast.Call):
        function = node.func
        return (
            isinstance(function, ast.Attribute)
            and function.attr in _CHANGES
            and own_attribute(_held_by(function.value), first) == name
        )
    if isinstance(node, ast.AugAssign):
        return own_attribute(_held_by(node.target), first) == name
    sets = [(_held_by(target), value) for target, value in _assigned_by(node)]
    return any(own_attribute(target, first) == name and not isinstance(value, ast.Constant) for target, value in sets)


def _held_by(node: ast.expr) -> ast.expr:
    """`self.cache` of `self.cache["key"][0]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


@lru_cache(maxsize=256)
def assignments(source: ClassSource) -> tuple[tuple[str, Assigned], ...]:
    """Every attribute that a class sets on itself, by name, in the order of the lines; read once, for all modules of
    the class."""
    return tuple(_assignments(source))


def _assignments(source: ClassSource) -> Iterator[tuple[str, Assigned]]:
    for node in source.tree.body:
        for target, value in _assigned_by(node):
            if isinstance(target, ast.Name):
                yield target.id, _at(source, node, source.tree.name, value)
    for function in functions_of(source).values():
        first = self_name(function)
        if first is None:
            continue
        nodes = [node for node in ast.walk(function) if isinstance(node, (ast.stmt, ast.Call))]
        for inner in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            for name, value in _sets(inner, first):
                yield name, _at(source, inner, function.name, value)


def self_name(function: Function) -> str | None:
    """What a method calls its object."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    return arguments[0].arg if arguments else None


def own_attribute(node: ast.AST, first: str) -> str | None:
    """`name` of `self.name`, and `layer.name` of `self.layer.name`."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join(reversed(names)) if names and isinstance(node, ast.Name) and node.id == first else None


def _at(source: ClassSource, node: ast.stmt | ast.Call, function: str, value: ast.expr | None) -> Assigned:
    return Assigned(SourceLocation(source.file, node.lineno, function, source.library), value)


def _assigned_by(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                values = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else []
                same = len(values) == len(target.elts)
                for index, item in enumerate(target.elts):
                    yield item, values[index] if same else None
            else:
                yield target, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value


def _sets(node: ast.stmt | ast.Call, first: str) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(node, ast.stmt):
        for target, value in _assigned_by(node):
            name = own_attribute(target, first) or _key_of_dict(target, first)
            if name is not None:
                yield name, value
        return
    if isinstance(node.func, ast.Attribute) and node.func.attr in _REGISTERS and isinstance(node.func.value, ast.Name):
        named = node.args[:1] or [keyword.value for keyword in node.keywords if keyword.arg == "name"]
        if node.func.value.id == first and named and (name := _text(named[0])) is not None:
            yield name, node.args[1] if len(node.args) > 1 else None
    elif _is_setattr(node.func):
        given = node.args[1:] if node.args and ast.unparse(node.args[0]) == first else node.args
        if given and (name := _text(given[0])) is not None:
            yield name, given[1] if len(given) > 1 else None


def _is_setattr(function: ast.expr) -> bool:
    """`setattr(…)`, `object.__setattr__(…)`, `super().__setattr__(…)`."""
    if isinstance(function, ast.Name):
        return function.id == "setattr"
    return isinstance(function, ast.Attribute) and function.attr == "__setattr__"


def _key_of_dict(target: ast.expr, first: str) -> str | None:
    """`name` of `self.__dict__["name"]` and `vars(self)["name"]`."""
    if isinstance(target, ast.Subscript) and ast.unparse(target.value) in (f"{first}.__dict__", f"vars({first})"):
        return _text(target.slice)
    return None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


MOST_NAMED = 3
"""Places that are named; one line for each."""


class Cut(NamedTuple):
    """A place in a module's source where autograd loses track."""

    path: str
    """Of the module in its model; empty: the model itself."""
    kind: str
    """Its class."""
    file: str
    line: int
    code: str
    """The code there: `self.weight.data`, `torch.no_grad()`."""
    parameter: str | None
    """The module's own parameter that it is about; None: something else, or everything within."""

    @property
    def switch(self) -> bool:
        """Whether it is about everything that is computed within."""
        return any(f"{switch}(" in self.code for switch in SWITCHES)


class WithoutGradient(NamedTuple):
    """What backward did not reach, and why as far as the source says."""

    paths: tuple[str, ...]
    """Parameters that require grad, whose module ran, and that have no gradient."""
    idle: tuple[str, ...] = ()
    """Parameters that require grad and whose module did not run at all."""
    frozen: tuple[str, ...] = ()
    """Parameters that do not require grad."""
    cuts: tuple[Cut, ...] = ()


NOTHING_MISSING = WithoutGradient(())


def without_gradient(model: nn.Module, ran: set[int], *, path: str = "") -> WithoutGradient:
    """Look through a model after a backward; `ran` are the `id()` of the modules that were run, `path` is its path in
    the whole model."""
    paths, idle, frozen = [], [], []
    for place, module in model.named_modules(prefix=path):
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{place}.{name}" if place else name
            if is_uninitialised(parameter) or parameter.grad is not None:
                continue
            if not parameter.requires_grad:
                frozen.append(full)
            elif id(module) in ran:
                paths.append(full)
            else:
                idle.append(full)
    cuts = _named(list(_cuts(model, ran, path)), paths) if paths else ()
    return WithoutGradient(tuple(paths), tuple(idle), tuple(frozen), cuts)


def _named(cuts: Sequence[Cut], paths: Sequence[str]) -> tuple[Cut, ...]:
    """Those that are about these very parameters; where there is none, whatever else cuts on the way."""
    exact = [
        cut
        for cut in cuts
        if cut.parameter is not None and (f"{cut.path}.{cut.parameter}" if cut.path else cut.parameter) in paths
    ]
    seen: dict[tuple[str, int, str], Cut] = {}
    for cut in exact or [cut for cut in cuts if cut.parameter is None]:
        seen.setdefault((cut.file, cut.line, cut.code), cut)
    return tuple(seen.values())[:MOST_NAMED]


def _cuts(model: nn.Module, ran: set[int], path: str) -> Iterator[Cut]:
    for place, module in model.named_modules(prefix=path):
        if id(module) in ran and not type(module).__module__.startswith("torch."):
            yield from _in_class(place, module)


def _in_class(path: str, module: nn.Module) -> Iterator[Cut]:
    """What cuts in `forward` and in the methods that it calls on its object, each as the class itself has it."""
    kind, read = type(module), set[str]()
    for source, function, first in reached_methods(kind):
        if function.name in read:
            continue
        read.add(function.name)
        nodes = [node for node in ast.walk(function) if isinstance(node, ast.expr)]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            value = _cut_off(node)
            if value is not None:
                own = own_attribute(value, first)
                parameter = own if own in module._parameters else None
                yield Cut(path, kind.__name__, source.file, node.lineno, ast.unparse(node), parameter)


def _cut_off(node: ast.expr) -> ast.expr | None:
    """What is cut off by this expression, if anything: the value before `.data` and `.detach()`, or the switch
    itself."""
    if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("detach", "detach_"):
        return node.func.value
    return node.func if isinstance(node, ast.Call) and is_switch(node) else None


def missing_words(missing: WithoutGradient) -> str:
    """What backward did not reach and why, as sentences that follow others; empty when nothing is missing."""
    words = ""
    if missing.paths:
        single = len(missing.paths) == 1
        words += (
            f" {_some(missing.paths)} took part and got no gradient: for autograd the output does not depend on"
            f" {'it' if single else 'them'}."
        )
        words += f" {_places(missing.cuts)}" if missing.cuts else ""
    if missing.idle:
        words += (
            f" {_some(missing.idle)} did not take part: {'its' if len(missing.idle) == 1 else 'their'} module did not"
            " run."
        )
    if missing.frozen:
        words += (
            f" {_some(missing.frozen)} {'is' if len(missing.frozen) == 1 else 'are'} frozen (requires_grad is False)."
        )
    return words


def no_backward(missing: WithoutGradient) -> str:
    """Why nothing at all could get a gradient, as the end of a sentence; empty where that is unknown."""
    if missing.cuts:
        return f": {_places(missing.cuts)}".rstrip(".")
    if missing.frozen and not missing.paths:
        return (
            f": {_some(missing.frozen)} {'is' if len(missing.frozen) == 1 else 'are'} frozen; unfreeze what should be"
            " trained"
        )
    if missing.idle and not missing.paths:
        return f": {_some(missing.idle)} belong to modules that did not run"
    if not missing.paths:
        return ": it has no parameters, and its input does not require a gradient either"
    return ""


def _some(paths: Sequence[str]) -> str:
    """All of a few, or the first and how many there are."""
    if len(paths) <= MOST_NAMED:
        return " and ".join(paths)
    return f"{paths[0]} and {len(paths) - 1} other parameters"


def _places(cuts: Sequence[Cut]) -> str:
    """The places and what they do, each kind of reason once."""
    said = []
    for switch in (False, True):
        some = [cut for cut in cuts if cut.switch == switch]
        if some:
            where = " and ".join(
                f"{cut.code} (line {cut.line} of {PurePath(cut.file).name}, {cut.kind})" for cut in some
            )
            gives = "let" if len(some) > 1 else "lets"
            takes = "give" if len(some) > 1 else "gives"
            said.append(
                f"{where} {gives} nothing that is computed there have a history."
                if switch
                else f"{where} {takes} the values without their history: without that, gradients arrive."
            )
    return " ".join(said)
