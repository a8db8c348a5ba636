"""The statement at fault for a finding, with its source, and what could mend it mechanically, for each rule, the
likeliest first. Pure but for reading the file; nothing wherever it needs a decision."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from devexplorer.core.models import Function, expressions_at, last_name, own_attribute, self_name
from devexplorer.core.records import Finding

Edit = tuple[ast.expr | ast.stmt, str]
"""A piece of the source, and its replacement."""
Edits = list[Edit]
"""Pieces none of which is within another."""


class FaultSite(NamedTuple):
    """The line at fault, with what is around it."""

    text: SourceText
    tree: ast.Module
    statement: ast.stmt
    function: Function
    owner: ast.ClassDef | None
    """The class that the function is in."""
    finding: Finding
    holder: str
    """What holds the tensors of the finding: `attribute` where they are the attribute itself."""
    floating: frozenset[str] = frozenset()
    """Floating tensors at the line, as it could write them, where it has made a floating tensor that names no dtype."""

    @property
    def first(self) -> str:
        """What the method calls its object; empty where it is no method."""
        method = self.owner is not None and self.function in self.owner.body
        return (self_name(self.function) or "") if method else ""

    @property
    def arguments(self) -> list[ast.arg]:
        """Those of the function without the object."""
        given = self.function.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        return every[1:] if self.first else every

    @property
    def making(self) -> bool:
        """Whether it is where a module is made."""
        return self.function.name == "__init__"


class SourceText:
    """The source as bytes, because columns of the syntax tree count those."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The source of a node."""
        begin, end = self._span(node)
        return self._bytes[begin:end].decode()

    def with_edits(self, edits: Sequence[Edit]) -> str:
        """The whole source with something else there; none of the pieces is within another."""
        new = self._bytes
        for (begin, end), text in sorted(((self._span(node), text) for node, text in edits), reverse=True):
            new = new[:begin] + text.encode() + new[end:]
        return new.decode()

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


def blamed(finding: Finding, holder: str, floating: frozenset[str] = frozenset()) -> list[FaultSite]:
    """The statements at the line of a finding, several where semicolons part them; none where the file cannot be read,
    or there is no function."""
    try:
        with open(finding.file, encoding="utf-8", newline="") as file:
            source = file.read()
        if (
            source.startswith("\ufeff") or "\r" in source.replace("\r\n", "") or "\f" in source
        ):  # lines would be counted otherwise
            return []
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    text, sites = SourceText(source), list[FaultSite]()
    waiting: list[tuple[ast.AST, Function | None, ast.ClassDef | None]] = [(tree, None, None)]
    while waiting:
        node, function, owner = waiting.pop()
        inner = [item for item in ast.iter_child_nodes(node) if _covers(item, finding.line)]
        statements = [item for item in inner if isinstance(item, ast.stmt | ast.ExceptHandler | ast.match_case)]
        if isinstance(node, Function):
            function = node
        elif isinstance(node, ast.ClassDef):
            owner = node
        elif isinstance(node, ast.stmt) and not statements and function is not None:
            sites.append(FaultSite(text, tree, node, function, owner, finding, holder, floating))
        waiting.extend((item, function, owner) for item in reversed(statements))
    return sites


def _covers(node: ast.AST, line: int) -> bool:
    """Whether a node is on a line; `case` has no place of its own, and what is in it has."""
    if isinstance(node, ast.match_case):
        return any(_covers(item, line) for item in node.body)
    return isinstance(node, ast.stmt | ast.ExceptHandler) and node.lineno <= line <= (node.end_lineno or node.lineno)


FACTORIES = frozenset({
    "arange", "as_tensor", "bartlett_window", "blackman_window", "empty", "eye", "full", "hamming_window",
    "hann_window", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn", "randperm", "tensor",
    "tril_indices", "triu_indices", "zeros",
})  # fmt: skip
"""Functions of torch that take `device=` and make a tensor on the CPU without it."""
_FLOATING = ("empty", "eye", "full", "normal", "ones", "rand", "randn", "tensor", "zeros")
"""Those whose tensor is mixed with others in their dtype; ranges and windows lose too much in a narrow one."""
TRAINED = "trained"
"""Holder of a plain tensor that wants a gradient."""
_CASTS = ("to", "cuda", "cpu", "xpu", "double", "float", "half", "bfloat16")
_CARD = re.compile(r"(cuda|xpu|mps|vgpu)(:\d+)?")
_CONTAINERS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_SIMPLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


# --- what is not registered


def _container(line: FaultSite) -> Iterator[Edits]:
    """A plain list or dict becomes one of torch's, which registers what it holds."""
    found, nn = _attribute_set(line), _name_of_nn(line.tree)
    if found is None or nn is None:
        return
    kind = "Parameter" if line.finding.rule == "unregistered-parameter" else "Module"
    value = found[1]
    items: list[ast.expr]
    if isinstance(value, (ast.List, ast.Tuple, ast.ListComp)):
        items = [value.elt] if isinstance(value, ast.ListComp) else value.elts
        if _all_single(items) and (items or _all_single(_appended(line, found[0]))):
            yield [(value, f"{nn}.{kind}List({line.text.of(value) if items else ''})")]
        return
    named = (
        value.keys and all(map(_is_name, value.keys)) and _all_single(value.values)
        if isinstance(value, ast.Dict)
        else isinstance(value, ast.DictComp) and isinstance(value.key, ast.JoinedStr) and _all_single([value.value])
    )
    if named:
        yield [(value, f"{nn}.{kind}Dict({line.text.of(value)})")]


def _appended(line: FaultSite, name: str) -> list[ast.expr]:
    """What is appended to an attribute, anywhere in the file."""
    calls = [node for node in ast.walk(line.tree) if isinstance(node, ast.Call) and node.args]
    return [
        node.args[0]
        for node in calls
        if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and last_name(node.func.value) == name
    ]


def _all_single(items: list[ast.expr]) -> bool:
    """Whether no item is a container itself, or several."""
    return not any(isinstance(item, (*_CONTAINERS, ast.Starred, ast.Constant)) for item in items)


def _is_name(key: ast.expr | None) -> bool:
    """Whether a key can be a module's name."""
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and bool(key.value) and "." not in key.value


def _tensor(line: FaultSite) -> Iterator[Edits]:
    """`self.x = t` becomes `self.register_buffer("x", t)`, or a Parameter where it is trained."""
    if line.holder not in ("attribute", TRAINED) or "[" in line.finding.path:
        return
    if (call := _set_by_name(line)) is not None and line.holder == "attribute":
        name_given, kept = map(line.text.of, call.args[1:])
        yield [(call, f"{line.first}.register_buffer({name_given}, {kept})")]
        return
    found = _attribute_set(line)
    if found is None:
        return
    if not _while_made(line):
        yield from _empty_at_first(line, found[0])
        return
    name, value = found
    if name.startswith("__") or isinstance(value, _CONTAINERS):
        return
    kind = last_name(value.func) if isinstance(value, ast.Call) else ""
    if kind[:1].isupper() and not kind.endswith("Tensor"):
        return  # a module, or a Parameter
    if line.holder == TRAINED:
        nn = _name_of_nn(line.tree)
        if nn is not None:
            yield [(value, f"{nn}.Parameter({_plain(line, value)})")]
        return
    for kept in dict.fromkeys((_unplaced(line, value), line.text.of(value))):
        yield [(line.statement, f'{line.first}.register_buffer("{name}", {kept})')]


def _set_by_name(line: FaultSite) -> ast.Call | None:
    """`setattr(self, name, t)` while the module is made."""
    call = line.statement.value if isinstance(line.statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or last_name(call.func) != "setattr" or len(call.args) != 3:
        return None
    return call if last_name(call.args[0]) == line.first and _while_made(line) else None


def _empty_at_first(line: FaultSite, name: str) -> Iterator[Edits]:
    """What a later call fills is a buffer from the start, `self.x = None` in `__init__`."""
    for maker in _makers(line):
        first = self_name(maker) or ""
        for node in ast.walk(maker):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Constant):
                continue
            if node.value.value is None and own_attribute(node.targets[0], first) == name:
                yield [(node, f'{first}.register_buffer("{name}", None, persistent=False)')]


def _makers(line: FaultSite) -> list[Function]:
    """The `__init__` of the class."""
    body = line.owner.body if line.owner is not None else []
    return [item for item in body if isinstance(item, Function) and item.name == "__init__"]


def _plain(line: FaultSite, value: ast.expr) -> str:
    """A tensor without the wish for a gradient, which a Parameter has by itself."""
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_" and not value.keywords:
            return line.text.of(value.func.value)
        wished = [item for item in value.keywords if item.arg == "requires_grad"]
        if wished:
            left = [*value.args, *(item.value for item in value.keywords if item not in wished)]
            names = [""] * len(value.args) + [
                f"{item.arg}=" if item.arg else "**" for item in value.keywords if item not in wished
            ]
            given = ", ".join(f"{name}{line.text.of(item)}" for name, item in zip(names, left, strict=True))
            return f"{line.text.of(value.func)}({given})"
    return line.text.of(value)


def _unplaced(line: FaultSite, value: ast.expr) -> str:
    """A tensor without `.to(device)` behind it: what is registered goes where the module goes."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and _places(value):
        value = value.func.value
    return line.text.of(value)


def _while_made(line: FaultSite) -> bool:
    """Whether the line runs when the module is made, in `__init__` or in a method that this calls."""
    if line.making:
        return after_super(line)
    return any(
        isinstance(node, ast.Call) and own_attribute(node.func, self_name(maker) or "") == line.function.name
        for maker in _makers(line)
        for node in ast.walk(maker)
    )


def after_super(line: FaultSite) -> bool:
    """Whether `super().__init__()` comes first: nothing can be registered until then."""
    for node in ast.walk(line.function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            return (node.lineno, node.col_offset) < (line.statement.lineno, line.statement.col_offset)
    return False


def _attribute_set(line: FaultSite) -> tuple[str, ast.expr] | None:
    """The one attribute of the module's own that the statement sets, and to what."""
    statement = line.statement
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    else:
        return None
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or target.value.id != line.first:
        return None
    path = line.finding.path.partition("[")[0]
    return (target.attr, value) if not path or path.rpartition(".")[2] == target.attr else None


def _leaf(line: FaultSite) -> Iterator[Edits]:
    """`nn.Parameter(t).to(d)` becomes `nn.Parameter(t.to(d))`."""
    found = _attribute_set(line)
    if found is None:
        return
    outer = found[1]
    if not isinstance(outer, ast.Call) or not isinstance(outer.func, ast.Attribute) or outer.func.attr not in _CASTS:
        return
    inner = outer.func.value
    if not isinstance(inner, ast.Call) or last_name(inner.func) != "Parameter" or not inner.args:
        return
    text, first = line.text, inner.args[0]
    value = text.of(first) if isinstance(first, _SIMPLE) else f"({text.of(first)})"
    moved = f"{value}{text.of(outer)[len(text.of(inner)) :]}"
    keywords = [f"{item.arg}=" if item.arg else "**" for item in inner.keywords]
    named = [f"{name}{text.of(item.value)}" for name, item in zip(keywords, inner.keywords, strict=True)]
    yield [(outer, f"{text.of(inner.func)}({', '.join([moved, *map(text.of, inner.args[1:]), *named])})")]


# --- what is in forward


def _history(line: FaultSite) -> Iterator[Edits]:
    """`self.weight.data` becomes `self.weight`, wherever it is in the line."""
    expressions = expressions_at(line.statement, line.finding.line)
    attributes = [node for node in expressions if isinstance(node, ast.Attribute)]
    cut = [node for node in attributes if node.attr == "data" and isinstance(node.ctx, ast.Load)]
    if cut and all(_is_of_self(node.value, line.first) for node in cut):
        yield [(node, line.text.of(node.value)) for node in cut]


def _is_of_self(node: ast.expr, first: str) -> bool:
    """Whether this is `self.layer.weight` or `self.blocks[0].weight`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == first


def _made_there(line: FaultSite) -> Iterator[Edits]:
    """`torch.zeros(3)` becomes `torch.zeros(3, device=x.device, dtype=x.dtype)`, and what copies it there afterwards
    goes. The dtype is for the day when the model is cast; until then it is the one that it had."""
    made = [node for node in _calls(line) if _is_factory(node) and not _has_device(node)]
    if not made or any(inner is not outer and inner in ast.walk(outer) for outer in made for inner in made):
        return
    copies = [_copy_of(line, node) for node in made]
    wanted: list[str] = []
    if line.finding.rule == "device-hop":  # the line says where it wants it; a device that is remembered goes stale
        given = [device for copy in copies if copy is not None for device in _device_given(copy)]
        if len(made) != 1 or len(given) != 1:
            return
        wanted = [] if own_attribute(given[0], line.first) else [line.text.of(given[0])]
    for device in [*wanted, *devices_at_hand(line), *_more_devices(line)]:
        for typed in (True, False):
            if any(copies):
                pairs = zip(made, copies, strict=True)
                yield [_with_device(line, node, copy, device, typed) for node, copy in pairs]
            yield [_with_device(line, node, None, device, typed) for node in made]


def _takes_dtype(line: FaultSite, made: ast.Call, device: str) -> bool:
    """Whether what is made there can have the dtype of the tensor whose device it gets."""
    if line.finding.rule != "default-device" or last_name(made.func) not in _FLOATING:
        return False
    named = {item.arg for item in made.keywords} & {"dtype", "out", None}
    return not named and device.removesuffix(".device") in line.floating


def _no_device(line: FaultSite) -> Iterator[Edits]:
    """A card that is named: in forward the input's device instead; where the module is made, none, because the module
    will be moved."""
    if line.making:
        yield from _made_on_cpu(line)
        return
    calls = _calls(line)
    named = [item for item in calls if _is_factory(item) and _has_device(item)]
    moved = [item for item in calls if _names_card(item)]
    if len(named) + len(moved) != 1:
        return
    made = [item for item in calls if _is_factory(item) and not _has_device(item)]
    for device in [*devices_at_hand(line), *_more_devices(line)]:
        if named:
            given = next((item.value for item in named[0].keywords if item.arg == "device"), None)
            if given is not None and _is_card(given):
                yield [(given, device)]
        elif len(made) == 1 and _copy_of(line, made[0]) is moved[0]:
            yield [_with_device(line, made[0], moved[0], device)]


def _made_on_cpu(line: FaultSite) -> Iterator[Edits]:
    """Without `.cuda()`, on what will be a module, a parameter or a buffer: it follows the module."""
    moved = [node for node in _calls(line) if _names_card(node)]
    if len(moved) != 1 or not isinstance(moved[0].func, ast.Attribute):
        return
    outermost = line.statement.value if isinstance(line.statement, (ast.Assign, ast.AnnAssign, ast.Expr)) else None
    made = moved[0].func.value
    nn = _name_of_nn(line.tree)
    if outermost is moved[0]:
        registers = isinstance(made, ast.Call) and nn is not None and line.text.of(made.func).startswith(f"{nn}.")
    else:
        registering = ("Parameter", "register_buffer", "Buffer")
        registers = isinstance(outermost, ast.Call) and last_name(outermost.func) in registering
    if registers:
        yield [(moved[0], line.text.of(made))]


def _calls(line: FaultSite) -> list[ast.Call]:
    return [node for node in expressions_at(line.statement, line.finding.line) if isinstance(node, ast.Call)]


def _is_factory(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id == "torch"
        and called.attr in FACTORIES
    )


def _has_device(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and any(item.arg in ("device", None) for item in node.keywords)


def _names_card(node: ast.Call) -> bool:
    """`.cuda()`, `.cuda(0)`, `.to("cuda:0")`."""
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("cuda", "xpu"):
        return True
    return node.func.attr == "to" and len(node.args) == 1 and not node.keywords and _is_card(node.args[0])


def _is_card(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _CARD.fullmatch(node.value) is not None


def _places(node: ast.Call) -> bool:
    """`.cuda()`, `.to(device)`, `.to(self.device)`, `.to("cuda:0")`: a copy to a device and nothing else."""
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("cuda", "xpu"):
        return True
    return node.func.attr == "to" and any(_is_device(item) for item in _device_given(node))


def _device_given(node: ast.Call) -> list[ast.expr]:
    """The one argument of a call; none where there are others."""
    given = [*node.args, *(item.value for item in node.keywords if item.arg in ("device", "non_blocking"))]
    return given[:1] if len(node.args) <= 1 and all(item.arg is not None for item in node.keywords) else []


def _is_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and (node.value == "cpu" or _is_card(node))
    if isinstance(node, ast.Call):
        return last_name(node.func) == "device"
    return last_name(node).lower().strip("_") in ("device", "dev")


def _copy_of(line: FaultSite, made: ast.expr) -> ast.Call | None:
    """What copies a tensor to a device behind the call that makes it: `torch.zeros(3).sum(0).to(device)`."""
    for node in ast.walk(line.statement):
        if isinstance(node, ast.Call) and _places(node):
            inner: ast.expr = node
            while inner is not made and isinstance(inner, ast.Call | ast.Attribute | ast.Subscript):
                inner = inner.func if isinstance(inner, ast.Call) else inner.value
            if inner is made:
                return node
    return None


def _with_device(line: FaultSite, made: ast.Call, copy: ast.Call | None, device: str, typed: bool = False) -> Edit:
    """The call that makes a tensor, on a device, without the `copy` behind it; `typed`: with that dtype if it can."""
    call = line.text.of(made)
    inside = call[:-1].rstrip()
    end = call[len(inside) : -1] if "\n" in call[len(inside) :] else ""
    if inside.endswith("("):
        gap = ""
    elif inside.endswith(","):
        gap = " "
    else:
        gap = ", "
    given = f"device={device}"
    if typed and _takes_dtype(line, made, device):
        given += f", dtype={device.removesuffix('.device')}.dtype"
    there = f"{inside}{gap}{given}{',' if end and inside.endswith(',') else ''}{end})"
    if copy is None or not isinstance(copy.func, ast.Attribute) or not line.text.of(copy).startswith(call):
        return made, there
    return copy, there + line.text.of(copy.func.value)[len(call) :]


_WEIGHTED = re.compile(r"(Lazy)?(Linear|Conv(Transpose)?[123]d|Embedding(Bag)?|(Layer|Group|RMS|Batch)Norm(1d|2d|3d)?)")
"""Layers of torch that have a `weight`."""


def devices_at_hand(line: FaultSite) -> list[str]:
    """How a line can name the device that is right: that of a tensor that the function has, or of a parameter or buffer
    of its own."""
    for node in ast.walk(line.statement):
        if isinstance(node, ast.Lambda) and node.args.args and _is_on(node, line.finding.line):
            return [f"{node.args.args[0].arg}.device"]
    known = tensor_argument(line)
    if known is not None:
        return [f"{known}.device"]
    names = {item.arg for item in line.arguments if item.annotation is None}
    if "x" in names and not _is_number(line.function, "x"):
        return ["x.device"]
    return _own_devices(line)


def _is_on(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _own_devices(line: FaultSite) -> list[str]:
    """`self.scale.device`, `self.layer.weight.device`: of what the class registers."""
    if line.owner is None or not line.first or line.making:
        return []
    found: list[str] = []
    for function in line.owner.body:
        first = self_name(function) if isinstance(function, Function) else None
        for node in ast.walk(function) if first else ():
            value = node.value if isinstance(node, ast.Assign) else None
            if isinstance(node, ast.Call) and last_name(node.func) in ("register_buffer", "register_parameter"):
                name = node.args[0] if node.args else None
                if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier():
                    found.append(f"{line.first}.{name.value}.device")
            elif isinstance(node, ast.Assign) and isinstance(value, ast.Call) and len(node.targets) == 1:
                name_set, kind = own_attribute(node.targets[0], first or ""), last_name(value.func)
                if name_set is not None and kind in ("Parameter", "Buffer"):
                    found.append(f"{line.first}.{name_set}.device")
                elif name_set is not None and _WEIGHTED.fullmatch(kind):
                    found.append(f"{line.first}.{name_set}.weight.device")
    return list(dict.fromkeys(found))[:2]


def _more_devices(line: FaultSite) -> list[str]:
    """Further ones that may be right: of other arguments, of a lambda's, of any parameter."""
    names: list[str] = []
    for node in ast.walk(line.statement):
        if isinstance(node, ast.Lambda) and _is_on(node, line.finding.line):
            names += [item.arg for item in node.args.args]
    if not line.making:
        names += [item.arg for item in line.arguments if item.annotation is None]
    numbers = {name for name in names if _is_number(line.function, name)}
    found = [f"{name}.device" for name in names if name not in numbers]
    if line.first and not line.making:
        found.append(f"next({line.first}.parameters()).device")
    return [item for item in dict.fromkeys(found) if item not in devices_at_hand(line)][:3]


def tensor_argument(line: FaultSite) -> str | None:
    """An argument of the function that is a tensor: by its annotation, the first one of `forward`, or one whose shape
    the function reads."""
    arguments = line.arguments
    shaped = _with_shape(line.function)
    for argument in arguments:
        if argument.annotation is None:
            if (line.function.name != "forward" or argument is not arguments[0]) and argument.arg not in shaped:
                continue
        elif ast.unparse(argument.annotation).rpartition(".")[2] != "Tensor":
            continue
        return None if argument.annotation is None and _is_number(line.function, argument.arg) else argument.arg
    return None


def _with_shape(function: ast.AST) -> set[str]:
    """Names whose `shape` or `size()` a function reads."""
    nodes = list(ast.walk(function))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    sizes = [node for node in called if isinstance(node, ast.Attribute) and node.attr == "size"]
    shapes = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "shape"]
    return {node.value.id for node in (*sizes, *shapes) if isinstance(node.value, ast.Name)}


def _is_number(function: ast.AST, name: str) -> bool:
    """Whether a function treats an argument as a number: `torch.arange(n)`, `range(n)`."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and last_name(node.func) != "normal"]
    counting = (
        call for call in calls if _is_factory(call) or (isinstance(call.func, ast.Name) and call.func.id == "range")
    )
    return any(isinstance(given, ast.Name) and given.id == name for call in counting for given in call.args)


def _name_of_nn(tree: ast.Module) -> str | None:
    """How `torch.nn` is called in the file."""
    names: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            for item in node.names:
                if item.name == "nn":
                    names["torch.nn"] = item.asname or "nn"
        elif isinstance(node, ast.Import):
            for item in node.names:
                if item.name == "torch.nn" and item.asname:
                    names["torch.nn"] = item.asname
                elif item.name in ("torch", "torch.nn") and not item.asname:
                    names.setdefault("torch", "torch.nn")
    return names.get("torch.nn") or names.get("torch")


FIXES: dict[str, Callable[[FaultSite], Iterator[Edits]]] = {
    "unregistered-module": _container,
    "unregistered-parameter": _container,
    "unregistered-tensor": _tensor,
    "parameter-not-leaf": _leaf,
    "cut-from-autograd": _history,
    "default-device": _made_there,
    "device-hop": _made_there,
    "hard-coded-device": _no_device,
}
"""Rule -> what could mend it."""
