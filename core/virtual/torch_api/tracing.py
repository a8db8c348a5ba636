"""`torch.compile`, `torch.export` and `torch.jit` of models on virtual GPUs: what can be traced is traced, Inductor is
refused, and script modules are moved there and back. Any thread.

A tracer sees a virtual tensor as a plain one on the device `vgpu:N`. So it must not be offered the tensor inside, as
other subclasses of tensors offer theirs (`__tensor_flatten__`), and must leave the Python below the dispatcher alone,
as it does with a kernel in C++. Parts of torch that take a second to import are changed when they are imported.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module
from torch.nn.utils import parametrize

from devexplorer.core.virtual.device.accounting import is_virtual
from devexplorer.core.virtual.operators.tensor import VirtualTensor


def when_imported(name: str, function: Callable[[ModuleType], None]) -> None:
    """Call `function` with the module once its own code has run."""
    module = sys.modules.get(name)
    if module is not None:
        function(module)
    else:
        sys.meta_path.insert(0, _Waiting(name, function))


class _Waiting:
    """Finds the one module as the others would, with a loader that calls the function afterwards."""

    def __init__(self, name: str, function: Callable[[ModuleType], None]) -> None:
        self._name, self._function = name, function

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """None for every module but the one, and for that one when it is asked for again."""
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = _Calling(spec.loader, self._function)
            spec.loader = loader
        return spec


class _Calling:
    def __init__(self, loader: Any, function: Callable[[ModuleType], None]) -> None:
        self._loader, self._function = loader, function

    def exec_module(self, module: ModuleType) -> None:
        """As the loader does, and then the function."""
        self._loader.exec_module(module)
        self._function(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


_PACKAGE = __name__.rsplit(".", 2)[0] + "."
"""All of virtual GPUs."""
REFUSED = (
    'torch.compile with Inductor has no code for virtual GPUs; use torch.compile(..., backend="aot_eager") there, '
    "or compile the model on the CPU or a real card"
)


def register_tracing() -> None:
    """Let torch's tracers take virtual tensors for plain ones."""
    modules: tuple[Any, ...] = (nn_module, parametrize)
    for asking in modules:  # `Module.to` swaps parameters of such classes, so that they stay the same objects
        original = getattr(asking, "is_traceable_wrapper_subclass", None)
        if original is not None:
            asking.is_traceable_wrapper_subclass = _or_virtual(original)
    when_imported("torch._dynamo.variables.builder", _accept)
    when_imported("torch.fx.experimental.proxy_tensor", _record)
    when_imported("torch._inductor.compile_fx", _refuse)
    _leave_alone()


def _or_virtual(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def swapped(tensor: Any) -> bool:
        return isinstance(tensor, VirtualTensor) or original(tensor)

    return swapped


def _accept(builder: Any) -> None:
    """Let torch.compile put virtual tensors into its graphs; it would leave every line with one to Python."""
    kind = builder.VariableBuilder
    if not hasattr(kind, "_wrap") or not hasattr(builder, "infer_subclass_type"):
        return
    wrap, subclass = kind._wrap, builder.infer_subclass_type

    def wrap_value(self: Any, value: Any) -> Any:
        return self.wrap_tensor(value) if isinstance(value, VirtualTensor) else wrap(self, value)

    def infer_subclass_type(value: Any) -> Any:
        return None if isinstance(value, VirtualTensor) else subclass(value)

    kind._wrap, builder.infer_subclass_type = wrap_value, infer_subclass_type


def _record(proxy_tensor: Any) -> None:
    """Let `make_fx` record operations on virtual tensors; it would let them pass and keep their results as
    constants."""
    if hasattr(proxy_tensor, "HANDLED_TYPES"):
        proxy_tensor.HANDLED_TYPES = (*proxy_tensor.HANDLED_TYPES, VirtualTensor)


def _leave_alone() -> None:
    """Tell the frame evaluator of torch.compile that nothing in this package, and nothing that it calls, is the user's
    code to compile."""
    frames: Any = torch._C._dynamo.eval_frame
    if not all(hasattr(frames, name) for name in ("set_code_exec_strategy", "_FrameExecStrategy", "_FrameAction")):
        return
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE):
            for code in _codes(module):
                frames.set_code_exec_strategy(code, skip)


def _codes(owner: Any) -> Iterator[CodeType]:
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for value in vars(owner).values():
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if inspect.isclass(value) and not isinstance(owner, type) and value.__module__ == name:
            yield from _codes(value)
        elif inspect.isfunction(function) and function.__module__ == name:
            yield from _nested(inspect.unwrap(function).__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _refuse(inductor: Any) -> None:
    """Let Inductor say at once that it cannot, where it would fail deep down."""
    for name in ("compile_fx", "compile_fx_aot"):
        if hasattr(inductor, name):
            setattr(inductor, name, _refusing(getattr(inductor, name)))


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    def compile_graph(model_: Any, inputs_: Any, *args: Any, **options: Any) -> Any:
        if any(map(is_virtual, [*inputs_, *_values(model_)])):
            from torch._dynamo.exc import (
                ShortenTraceback,
            )  # the one kind that torch.compile lets through; it is imported here already

            kind = type(
                "InductorUnavailable", (ShortenTraceback,), {"__str__": lambda error: REFUSED}
            )  # torch would add more lines
            raise kind(REFUSED, first_useful_frame=None)
        return original(model_, inputs_, *args, **options)

    return compile_graph


def _values(graph: Any) -> Iterator[Any]:
    yield from vars(graph).get("_parameters", {}).values()
    for node in getattr(getattr(graph, "graph", None), "nodes", ()):
        yield from (node.meta.get(name) for name in ("example_value", "val"))


def register_scripting() -> None:
    """Let scripted and traced modules move, and refuse in a line to write tensors that a file cannot hold."""
    base: Any = torch.jit.ScriptModule
    base._apply = _moving(base._apply)
    scripted: Any = getattr(torch.jit, "RecursiveScriptModule", None)
    if scripted is not None:
        scripted.save = _saving(scripted.save)
    torch.jit.save = _saving(torch.jit.save)


def _moving(original: Callable[..., Any]) -> Callable[..., Any]:
    def _apply(module: Any, function: Any, recurse: bool = True) -> Any:
        """`Module._apply`; C++ holds the tensors, so it has to be given those on the other device, where others
        exchange their contents."""
        held = {
            name: tensor
            for names in (module._parameters, module._buffers)
            for name, tensor in names.items()
            if tensor is not None
        }
        with torch.no_grad():
            moved = {name: function(tensor) for name, tensor in held.items()}
        if held and not any(map(is_virtual, (*held.values(), *moved.values()))):
            return original(module, function, recurse)
        for name, child in module.named_children() if recurse else ():
            child._apply(function)
            module._c.setattr(name, child._c)  # it can have another one, which would stay where it is
        for name, tensor in held.items():
            value = moved[name]
            module._c.setattr(
                name, nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value
            )
        return module

    return _apply


def _saving(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save(module: Any, *args: Any, **kwargs: Any) -> Any:
        if any(map(is_virtual, (*module.parameters(), *module.buffers()))):
            raise RuntimeError(
                "torch.jit.save cannot write tensors of a virtual GPU; move the module to the CPU first, with"
                " module.cpu()"
            )
        return original(module, *args, **kwargs)

    return save
