"""What the mechanical fix of each rule changes in the statement at fault. Pure functions; None wherever it
needs a decision."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from devexplorer.core.doctor.code.fault_site import Edits, FaultSite, Text
from devexplorer.core.models import expressions_at, last_name

FACTORIES = frozenset({
    "arange", "as_tensor", "bartlett_window", "blackman_window", "empty", "eye", "full", "hamming_window",
    "hann_window", "linspace",
    "logspace", "ones", "rand", "randint", "randn", "randperm", "tensor", "tril_indices", "triu_indices", "zeros",
})  # fmt: skip
"""Functions of torch that take `device=` and make a tensor on the CPU without it."""
_CASTS = ("to", "cuda", "cpu", "xpu", "double", "float", "half", "bfloat16")
_CARD = re.compile(r"(cuda|xpu|mps|vgpu)(:\d+)?")
_CONTAINERS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_SIMPLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


# --- what is not registered


def _container(line: FaultSite) -> Edits:
    """A plain list or dict becomes one of torch's, which registers what it holds."""
    found = _attribute_set(line)
    if found is None:
        return None
    kind = "Parameter" if line.finding.rule == "unregistered-parameter" else "Module"
    value, nn = found[1], _name_of_nn(line.tree)
    if nn is None:
        return None
    items: list[ast.expr]
    if isinstance(value, (ast.List, ast.Tuple, ast.ListComp)):
        items = [value.elt] if isinstance(value, ast.ListComp) else value.elts
        if not _all_single(items):
            return None
        if not items and not _all_single(_appended(line, found[0])):
            return None
        return value, f"{nn}.{kind}List({line.text.of(value) if items else ''})"
    named = (
        value.keys and all(map(_is_name, value.keys)) and _all_single(value.values)
        if isinstance(value, ast.Dict)
        else isinstance(value, ast.DictComp) and isinstance(value.key, ast.JoinedStr) and _all_single([value.value])
    )
    return (value, f"{nn}.{kind}Dict({line.text.of(value)})") if named else None


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


def _buffer(line: FaultSite) -> Edits:
    """`self.x = t` becomes `self.register_buffer("x", t)`."""
    found = _attribute_set(line)
    if found is None or line.holder != "attribute":
        return None
    if not line.making or "[" in line.finding.path or not _after_super(line):
        return None
    name, value = found
    if name.startswith("__") or isinstance(value, _CONTAINERS):
        return None
    if any(isinstance(node, ast.keyword) and node.arg == "requires_grad" for node in ast.walk(value)):
        return None  # a parameter, rather
    return line.statement, f'{line.first}.register_buffer("{name}", {line.text.of(value)})'


def _after_super(line: FaultSite) -> bool:
    """Whether `super().__init__()` comes first: nothing can be registered until then."""
    for node in ast.walk(line.function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            return node.lineno < line.statement.lineno
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


def _leaf(line: FaultSite) -> Edits:
    """`nn.Parameter(t).to(d)` becomes `nn.Parameter(t.to(d))`."""
    found = _attribute_set(line)
    if found is None:
        return None
    outer = found[1]
    if not isinstance(outer, ast.Call) or not isinstance(outer.func, ast.Attribute) or outer.func.attr not in _CASTS:
        return None
    inner = outer.func.value
    if not isinstance(inner, ast.Call) or last_name(inner.func) != "Parameter" or not inner.args:
        return None
    text, first = line.text, inner.args[0]
    value = text.of(first) if isinstance(first, _SIMPLE) else f"({text.of(first)})"
    moved = f"{value}{text.of(outer)[len(text.of(inner)) :]}"
    keywords = [f"{item.arg}=" if item.arg else "**" for item in inner.keywords]
    named = [f"{name}{text.of(item.value)}" for name, item in zip(keywords, inner.keywords, strict=True)]
    return outer, f"{text.of(inner.func)}({', '.join([moved, *map(text.of, inner.args[1:]), *named])})"


# --- what is in forward


def _history(line: FaultSite) -> Edits:
    """`self.weight.data` becomes `self.weight`, wherever it is in the line."""
    expressions = expressions_at(line.statement, line.finding.line)
    attributes = [node for node in expressions if isinstance(node, ast.Attribute)]
    cut = [node for node in attributes if node.attr == "data" and isinstance(node.ctx, ast.Load)]
    if not all(_is_of_self(node.value, line.first) for node in cut):
        return None
    return [(node, line.text.of(node.value)) for node in cut]


def _is_of_self(node: ast.expr, first: str) -> bool:
    """Whether this is `self.layer.weight` or `self.blocks[0].weight`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == first


def _device_of_input(line: FaultSite) -> Edits:
    """`torch.zeros(3)` becomes `torch.zeros(3, device=x.device)`."""
    made = [node for node in _calls(line) if _is_factory(node) and not _has_device(node)]
    known = tensor_argument(line)
    if len(made) != 1 or known is None:
        return None
    return made[0], _with_device(line.text, made[0], f"{known}.device")


def _no_device(line: FaultSite) -> Edits:
    """A card that is named: in forward the input's device instead; where the module is made, none, because the module
    will be moved."""
    if line.making:
        return _made_on_cpu(line)
    known = tensor_argument(line)
    if known is None:
        return None
    calls = _calls(line)
    named = [item for item in calls if _is_factory(item) and _has_device(item)]
    moved = [item for item in calls if _names_card(item)]
    if len(named) + len(moved) != 1:
        return None
    if named:
        given = next(item.value for item in named[0].keywords if item.arg == "device")
        return (given, f"{known}.device") if _is_card(given) else None
    assert isinstance(moved[0].func, ast.Attribute)
    made = moved[0].func.value
    if _is_factory(made) and not _has_device(made):
        return moved[0], _with_device(line.text, made, f"{known}.device")
    return None


def _made_on_cpu(line: FaultSite) -> Edits:
    """Without `.cuda()`, on what will be a module, a parameter or a buffer: it follows the module."""
    moved = [node for node in _calls(line) if _names_card(node)]
    if len(moved) != 1 or not isinstance(moved[0].func, ast.Attribute):
        return None
    outermost = line.statement.value if isinstance(line.statement, (ast.Assign, ast.AnnAssign, ast.Expr)) else None
    made = moved[0].func.value
    nn = _name_of_nn(line.tree)
    if outermost is moved[0]:
        registers = isinstance(made, ast.Call) and nn is not None and line.text.of(made.func).startswith(f"{nn}.")
    else:
        registering = ("Parameter", "register_buffer", "Buffer")
        registers = isinstance(outermost, ast.Call) and last_name(outermost.func) in registering
    return (moved[0], line.text.of(made)) if registers else None


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


def _with_device(text: Text, call: ast.expr, device: str) -> str:
    inside = text.of(call)[:-1].rstrip()
    gap = "" if inside.endswith("(") else " " if inside.endswith(",") else ", "
    return f"{inside}{gap}device={device})"


def tensor_argument(line: FaultSite) -> str | None:
    """An argument of the function that is a tensor: by its annotation, the first one of `forward`, or one whose shape
    the function reads."""
    arguments = [*line.function.args.posonlyargs, *line.function.args.args][1:]
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
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
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


FIXES: dict[str, Callable[[FaultSite], Edits]] = {
    "unregistered-module": _container,
    "unregistered-parameter": _container,
    "unregistered-tensor": _buffer,
    "parameter-not-leaf": _leaf,
    "cut-from-autograd": _history,
    "default-device": _device_of_input,
    "hard-coded-device": _no_device,
}
"""Rule -> what makes its fix."""
TAKES_DEVICE = ("default-device", "hard-coded-device")
"""Rules whose fix takes the device of a tensor at hand (`tensor_argument`)."""
