"""The statement at fault for a finding, with its source, and what could mend it mechanically, for each rule, the
likeliest first. Pure but for reading the file; nothing wherever it needs a decision."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from devexplorer.core.doctor.code.syntax import calls_at, nodes
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
        if self.owner is None or self.function not in self.owner.body:
            return ""
        return self_name(self.function) or ""

    @property
    def arguments(self) -> list[ast.arg]:
        """Those of the function without the object."""
        given = self.function.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        if self.first:
            every.pop(0)
        return every

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

    def of(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """The source of a node."""
        begin, end = self._span(node)
        return self._bytes[begin:end].decode()

    def with_edits(self, edits: Sequence[Edit]) -> str:
        """The whole source with something else there; none of the pieces is within another."""
        new = self._bytes
        for node, text in sorted(edits, key=lambda edit: self._span(edit[0]), reverse=True):
            begin, end = self._span(node)
            new = new[:begin] + text.encode() + new[end:]
        return new.decode()

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


def blamed(finding: Finding, holder: str, floating: frozenset[str] = frozenset()) -> list[FaultSite]:
    """The statements at the line of a finding, several where semicolons part them; none where the file cannot be read,
    or there is no function."""
    try:
        with open(finding.file, encoding="utf-8", newline="") as file:
            source = file.read()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    if source.startswith("\ufeff") or "\r" in source.replace("\r\n", "") or "\f" in source:
        return []  # lines would be counted otherwise
    text, sites = SourceText(source), list[FaultSite]()

    def look(node: ast.AST, function: Function | None, owner: ast.ClassDef | None) -> None:
        inner = [child for child in ast.iter_child_nodes(node) if _covers(child, finding.line)]
        if isinstance(node, Function):
            function = node
        elif isinstance(node, ast.ClassDef):
            owner = node
        elif isinstance(node, ast.stmt) and not inner and function is not None:
            sites.append(FaultSite(text, tree, node, function, owner, finding, holder, floating))
        for child in inner:
            look(child, function, owner)

    look(tree, None, None)
    return sites


def _covers(node: ast.AST, line: int) -> bool:
    """Whether a node is on a line; `case` has no place of its own, and what is in it has."""
    if isinstance(node, ast.match_case):
        return any(_covers(item, line) for item in node.body)
    return isinstance(node, ast.stmt | ast.ExceptHandler) and _is_on(node, line)


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
    name, value = found
    text, made = line.text.of(value), ""
    match value:
        case ast.List(elts=[]) | ast.Tuple(elts=[]):
            if _all_single(_appended(line, name)):
                made = "List()"
        case ast.List(elts=items) | ast.Tuple(elts=items) if _all_single(items):
            made = f"List({text})"
        case ast.ListComp(elt=item) if _all_single([item]):
            made = f"List({text})"
        case ast.Dict(keys=[_, *_] as keys, values=values) if all(map(_is_name, keys)) and _all_single(values):
            made = f"Dict({text})"
        case ast.DictComp(key=ast.JoinedStr(), value=item) if _all_single([item]):
            made = f"Dict({text})"
    if made:
        kind = "Parameter" if line.finding.rule == "unregistered-parameter" else "Module"
        yield [(value, f"{nn}.{kind}{made}")]


def _appended(line: FaultSite, name: str) -> list[ast.expr]:
    """What is appended to an attribute, anywhere in the file."""
    found = []
    for node in nodes(line.tree, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[item, *_]) if last_name(owner) == name:
                found.append(item)
    return found


def _all_single(items: Sequence[ast.expr]) -> bool:
    """Whether no item is a container itself, or several."""
    return not any(isinstance(item, (*_CONTAINERS, ast.Starred, ast.Constant)) for item in items)


def _is_name(key: ast.expr | None) -> bool:
    """Whether a key can be a module's name."""
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and bool(key.value) and "." not in key.value


def _tensor(line: FaultSite) -> Iterator[Edits]:
    """`self.x = t` becomes `self.register_buffer("x", t)`, or a Parameter where it is trained."""
    if line.holder not in ("attribute", TRAINED) or "[" in line.finding.path:
        return
    match line.statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=owner), name, kept]) as call):
            if owner == line.first and line.holder == "attribute" and _while_made(line):
                yield [(call, f"{owner}.register_buffer({line.text.of(name)}, {line.text.of(kept)})")]
    found = _attribute_set(line)
    if found is None:
        return
    attribute, value = found
    if not _while_made(line):
        yield from _empty_at_first(line, attribute)
        return
    if attribute.startswith("__") or isinstance(value, _CONTAINERS):
        return
    if isinstance(value, ast.Call):
        kind = last_name(value.func)
        if kind[:1].isupper() and not kind.endswith("Tensor"):
            return  # a module, or a Parameter
    if line.holder == TRAINED:
        nn = _name_of_nn(line.tree)
        if nn is not None:
            yield [(value, f"{nn}.Parameter({_plain(line, value)})")]
        return
    for text in dict.fromkeys((_unplaced(line, value), line.text.of(value))):
        yield [(line.statement, f'{line.first}.register_buffer("{attribute}", {text})')]


def _empty_at_first(line: FaultSite, name: str) -> Iterator[Edits]:
    """What a later call fills is a buffer from the start, `self.x = None` in `__init__`."""
    for maker in _makers(line):
        first = self_name(maker) or ""
        for node in nodes(maker, ast.Assign):
            match node:
                case ast.Assign(targets=[target], value=ast.Constant(value=None)):
                    if own_attribute(target, first) == name:
                        yield [(node, f'{first}.register_buffer("{name}", None, persistent=False)')]


def _makers(line: FaultSite) -> list[Function]:
    """The `__init__` of the class."""
    if line.owner is None:
        return []
    return [item for item in line.owner.body if isinstance(item, Function) and item.name == "__init__"]


def _plain(line: FaultSite, value: ast.expr) -> str:
    """A tensor without the wish for a gradient, which a Parameter has by itself."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="requires_grad_"), keywords=[]):
            return line.text.of(inner)
        case ast.Call() if any(item.arg == "requires_grad" for item in value.keywords):
            given = [line.text.of(item) for item in value.args]
            given += [line.text.of(item) for item in value.keywords if item.arg != "requires_grad"]
            return f"{line.text.of(value.func)}({', '.join(given)})"
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
    for maker in _makers(line):
        for call in nodes(maker, ast.Call):
            if own_attribute(call.func, self_name(maker) or "") == line.function.name:
                return True
    return False


def after_super(line: FaultSite) -> bool:
    """Whether `super().__init__()` comes first: nothing can be registered until then."""
    for call in nodes(line.function, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "__init__":
            return (call.lineno, call.col_offset) < (line.statement.lineno, line.statement.col_offset)
    return False


def _attribute_set(line: FaultSite) -> tuple[str, ast.expr] | None:
    """The one attribute of the module's own that the statement sets, and to what."""
    path = line.finding.path.partition("[")[0]
    match line.statement:
        case (
            ast.Assign(targets=[ast.Attribute(value=ast.Name(id=owner), attr=name)], value=value)
            | ast.AnnAssign(target=ast.Attribute(value=ast.Name(id=owner), attr=name), value=ast.expr() as value)
        ) if owner == line.first and (not path or path.rpartition(".")[2] == name):
            return name, value
    return None


def _leaf(line: FaultSite) -> Iterator[Edits]:
    """`nn.Parameter(t).to(d)` becomes `nn.Parameter(t.to(d))`."""
    found, of = _attribute_set(line), line.text.of
    match found:
        case (_, ast.Call(func=ast.Attribute(value=ast.Call(args=[first, *others]) as inner, attr=cast)) as outer):
            if cast in _CASTS and last_name(inner.func) == "Parameter":
                value = of(first) if isinstance(first, _SIMPLE) else f"({of(first)})"
                moved = f"{value}{of(outer)[len(of(inner)) :]}"
                given = ", ".join([moved, *map(of, others), *map(of, inner.keywords)])
                yield [(outer, f"{of(inner.func)}({given})")]


# --- what is in forward


def _history(line: FaultSite) -> Iterator[Edits]:
    """`self.weight.data` becomes `self.weight`, wherever it is in the line."""
    edits: Edits = []
    for node in expressions_at(line.statement, line.finding.line):
        match node:
            case ast.Attribute(value=value, attr="data", ctx=ast.Load()):
                if not _is_of_self(value, line.first):
                    return
                edits.append((node, line.text.of(value)))
    if edits:
        yield edits


def _is_of_self(node: ast.expr, first: str) -> bool:
    """Whether this is `self.layer.weight` or `self.blocks[0].weight`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == first


def _made_there(line: FaultSite) -> Iterator[Edits]:
    """`torch.zeros(3)` becomes `torch.zeros(3, device=x.device, dtype=x.dtype)`, and what copies it there afterwards
    goes. The dtype is for the day when the model is cast; until then it is the one that it had."""
    made = _made_anywhere(line)
    if not made or any(inner is not outer and inner in ast.walk(outer) for outer in made for inner in made):
        return
    copies = [_copy_of(line, node) for node in made]
    devices = devices_at_hand(line) + _more_devices(line)
    if line.finding.rule == "device-hop":  # the line says where it wants it; a device that is remembered goes stale
        given = _device_given(copies[0]) if copies[0] is not None else None
        if len(made) != 1 or given is None:
            return
        if not own_attribute(given, line.first):
            devices.insert(0, line.text.of(given))
    for device in devices:
        for typed in (True, False):
            if any(copies):
                yield [_with_device(line, *pair, device, typed) for pair in zip(made, copies, strict=True)]
            yield [_with_device(line, node, None, device, typed) for node in made]


def _made_anywhere(line: FaultSite) -> list[ast.Call]:
    """The calls of the line that make a tensor and name no device."""
    return [node for node in calls_at(line.statement, line.finding.line) if _is_factory(node) and not _has_device(node)]


def _takes_dtype(line: FaultSite, made: ast.Call, device: str) -> bool:
    """Whether what is made there can have the dtype of the tensor whose device it gets."""
    if line.finding.rule != "default-device" or last_name(made.func) not in _FLOATING:
        return False
    named = {item.arg for item in made.keywords} & {"dtype", "out", None}
    return not named and device.removesuffix(".device") in line.floating


def _no_device(line: FaultSite) -> Iterator[Edits]:
    """A card that is named: in forward the input's device instead; where the module is made, none, because the module
    will be moved."""
    named, moved = [], []
    for call in calls_at(line.statement, line.finding.line):
        if _is_factory(call) and _has_device(call):
            named.append(call)
        if _names_card(call):
            moved.append(call)
    if line.making:
        if len(moved) == 1 and _registers(line, moved[0]) and isinstance(moved[0].func, ast.Attribute):
            yield [(moved[0], line.text.of(moved[0].func.value))]
        return
    if len(named) + len(moved) != 1:
        return
    made = _made_anywhere(line)
    for device in [*devices_at_hand(line), *_more_devices(line)]:
        if moved:
            if len(made) == 1 and _copy_of(line, made[0]) is moved[0]:
                yield [_with_device(line, made[0], moved[0], device)]
            continue
        for item in named[0].keywords:
            if item.arg == "device" and _is_card(item.value):
                yield [(item.value, device)]


def _registers(line: FaultSite, moved: ast.Call) -> bool:
    """Whether what `.cuda()` moves will be a module, a parameter or a buffer: it follows the module."""
    match line.statement:
        case ast.Assign(value=outermost) | ast.AnnAssign(value=outermost) | ast.Expr(value=outermost):
            if outermost is not moved:
                kinds = ("Parameter", "register_buffer", "Buffer")
                return isinstance(outermost, ast.Call) and last_name(outermost.func) in kinds
            nn, made = _name_of_nn(line.tree), line.text.of(moved)
            return nn is not None and isinstance(_owner(moved), ast.Call) and made.startswith(f"{nn}.")
    return False


def _owner(call: ast.Call) -> ast.expr | None:
    """What a method is called on."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _is_factory(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name)):
            return name in FACTORIES
    return False


def _has_device(node: ast.Call) -> bool:
    return any(item.arg in ("device", None) for item in node.keywords)


def _names_card(node: ast.Call) -> bool:
    """`.cuda()`, `.cuda(0)`, `.to("cuda:0")`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="cuda" | "xpu")):
            return True
        case ast.Call(func=ast.Attribute(attr="to"), args=[device], keywords=[]):
            return _is_card(device)
    return False


def _is_card(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _CARD.fullmatch(node.value) is not None


def _places(node: ast.Call) -> bool:
    """`.cuda()`, `.to(device)`, `.to(self.device)`, `.to("cuda:0")`: a copy to a device and nothing else."""
    if not isinstance(node.func, ast.Attribute):
        return False
    given = _device_given(node)
    return node.func.attr in ("cuda", "xpu") or (node.func.attr == "to" and given is not None and _is_device(given))


def _device_given(node: ast.Call) -> ast.expr | None:
    """The device that a call copies to; None where it is given more than that."""
    if len(node.args) > 1 or any(item.arg is None for item in node.keywords):
        return None
    given = [*node.args, *(item.value for item in node.keywords if item.arg in ("device", "non_blocking"))]
    return next(iter(given), None)


def _is_device(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return value == "cpu" or _is_card(node)
        case ast.Call(func=called):
            return last_name(called) == "device"
    return last_name(node).lower().strip("_") in ("device", "dev")


def _copy_of(line: FaultSite, made: ast.expr) -> ast.Call | None:
    """What copies a tensor to a device behind the call that makes it: `torch.zeros(3).sum(0).to(device)`."""
    for node in nodes(line.statement, ast.Call):
        inner: ast.expr = node
        while inner is not made and isinstance(inner, ast.Call | ast.Attribute | ast.Subscript):
            inner = inner.func if isinstance(inner, ast.Call) else inner.value
        if inner is made and _places(node):
            return node
    return None


def _with_device(line: FaultSite, made: ast.Call, copy: ast.Call | None, device: str, typed: bool = False) -> Edit:
    """The call that makes a tensor, on a device, without the `copy` behind it; `typed`: with that dtype if it can."""
    call = line.text.of(made)
    given = f"device={device}"
    if typed and _takes_dtype(line, made, device):
        given += f", dtype={device.removesuffix('.device')}.dtype"
    inside = call[:-1].rstrip()
    if inside.endswith(","):
        given = f" {given}," if "\n" in call[len(inside) :] else f" {given}"
    elif not inside.endswith("("):
        given = f", {given}"
    there = f"{inside}{given}{call[len(inside) :]}"
    if copy is None or not isinstance(copy.func, ast.Attribute) or not line.text.of(copy).startswith(call):
        return made, there
    return copy, there + line.text.of(copy.func.value)[len(call) :]


_WEIGHTED = re.compile(r"(Lazy)?(Linear|Conv(Transpose)?[123]d|Embedding(Bag)?|(Layer|Group|RMS|Batch)Norm(1d|2d|3d)?)")
"""Layers of torch that have a `weight`."""


def devices_at_hand(line: FaultSite) -> list[str]:
    """How a line can name the device that is right: that of a tensor that the function has, or of a parameter or buffer
    of its own."""
    given = _lambda_arguments(line)
    if given:
        return [f"{given[0]}.device"]
    known = _tensor_argument(line)
    if known is not None:
        return [f"{known}.device"]
    names = {item.arg for item in line.arguments if item.annotation is None}
    if "x" in names and not _is_number(line.function, "x"):
        return ["x.device"]
    return _own_devices(line)


def _lambda_arguments(line: FaultSite) -> list[str]:
    """Those of the lambda at the line."""
    names = []
    for node in nodes(line.statement, ast.Lambda):
        if _is_on(node, line.finding.line):
            names += [item.arg for item in node.args.args]
    return names


def _is_on(node: ast.expr | ast.stmt | ast.ExceptHandler, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _own_devices(line: FaultSite) -> list[str]:
    """`self.scale.device`, `self.layer.weight.device`: of what the class registers."""
    if line.owner is None or not line.first or line.making:
        return []
    found: dict[str, None] = {}
    for node in ast.walk(line.owner):
        match node:
            case ast.Call(func=called, args=[ast.Constant(value=str() as name), *_]) if name.isidentifier():
                if last_name(called) in ("register_buffer", "register_parameter"):
                    found[name] = None
            case ast.Assign(targets=[target], value=ast.Call(func=called)):
                name_set, kind = own_attribute(target, line.first), last_name(called)
                if name_set is not None and kind in ("Parameter", "Buffer"):
                    found[name_set] = None
                elif name_set is not None and _WEIGHTED.fullmatch(kind):
                    found[f"{name_set}.weight"] = None
    return [f"{line.first}.{name}.device" for name in found][:2]


def _more_devices(line: FaultSite) -> list[str]:
    """Further ones that may be right: of other arguments, of a lambda's, of any parameter."""
    names = _lambda_arguments(line)
    if not line.making:
        names += [item.arg for item in line.arguments if item.annotation is None]
    found = [f"{name}.device" for name in dict.fromkeys(names) if not _is_number(line.function, name)]
    if line.first and not line.making:
        found.append(f"next({line.first}.parameters()).device")
    known = devices_at_hand(line)
    return [item for item in found if item not in known][:3]


def _tensor_argument(line: FaultSite) -> str | None:
    """An argument of the function that is a tensor: by its annotation, the first one of `forward`, or one whose shape
    the function reads."""
    shaped = _with_shape(line.function)
    for index, argument in enumerate(line.arguments):
        if argument.annotation is not None:
            if ast.unparse(argument.annotation).rpartition(".")[2] == "Tensor":
                return argument.arg
        elif (line.function.name == "forward" and index == 0) or argument.arg in shaped:
            return None if _is_number(line.function, argument.arg) else argument.arg
    return None


def _with_shape(function: ast.AST) -> set[str]:
    """Names whose `shape` or `size()` a function reads."""
    names = set()
    for node in ast.walk(function):
        match node:
            case (
                ast.Attribute(value=ast.Name(id=name), attr="shape")
                | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size"))
            ):
                names.add(name)
    return names


def _is_number(function: ast.AST, name: str) -> bool:
    """Whether a function treats an argument as a number: `torch.arange(n)`, `range(n)`."""
    for call in nodes(function, ast.Call):
        called = ast.unparse(call.func)
        counts = called == "range" or (_is_factory(call) and called != "torch.normal")
        if counts and name in map(ast.unparse, call.args):
            return True
    return False


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
