"""The Python that splits a model, lets activations hop, and joins it again: with torch alone, unless a lazy part waits
on a virtual GPU.

Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor, nn

from devexplorer.core.base import MOVE_LAZILY_IMPORT, bytes_text, expression, quoted, variable
from devexplorer.core.models import is_uninitialised
from devexplorer.core.split.records import SplitPlan
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.workspace import Target

_HOPS = '''
class Hops(TorchFunctionMode):
    """Lets each part of a model fetch its inputs to its own device; the output comes back to where the input was."""

    def __init__(self, model):
        super().__init__()
        self.hooks = [model.register_forward_pre_hook(self.begin, with_kwargs=True)]
        self.hooks += [module.register_forward_pre_hook(self.fetch, with_kwargs=True) for module in model.modules()]
        self.hooks += [model.register_forward_hook(self.end, with_kwargs=True, always_call=True)]

    def __deepcopy__(self, memo):
        made = Hops.__new__(Hops)  # in a copy of the model nothing follows
        made.hooks = []
        return made

    def begin(self, model, args, kwargs):
        if self.hooks:
            tensors = (value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor))
            self.home = next((tensor.device for tensor in tensors), None)
            self.__enter__()

    def fetch(self, module, args, kwargs):
        if not self.hooks:
            return None
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        devices = {tensor.device for tensor in (own[:1] or [*module.parameters(), *module.buffers()])}
        return self.to((args, kwargs), devices.pop()) if len(devices) == 1 else None

    def end(self, model, args, kwargs, output):
        if not self.hooks:
            return output
        self.__exit__(None, None, None)
        return output if self.home is None else self.to(output, self.home)

    def to(self, values, device):
        return tree_map(lambda value: value.to(device) if isinstance(value, torch.Tensor) else value, values)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # A function between the parts, such as a sum of two outputs, is called again where its first tensor is.
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError:
            tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
            if len({tensor.device for tensor in tensors}) < 2:
                raise
            args, kwargs = self.to((args, kwargs or {}), tensors[0].device)
            return func(*args, **kwargs)

    def remove(self):
        for hook in self.hooks:
            hook.remove()
'''
_IMPORTS = (
    "import torch\nfrom torch.overrides import TorchFunctionMode\nfrom torch.utils._pytree import tree_leaves,"
    " tree_map\n"
)


def follow(name: str) -> str:
    """Inserts hops."""
    return f"{_IMPORTS}\n{_HOPS}\n\n{hops_variable(name)} = Hops({variable(name)})"


def unfollow(name: str) -> str:
    """Takes them away again."""
    return f"{hops_variable(name)}.remove()"


def place(targets: Sequence[Target], devices: Mapping[str, str], direct: Collection[str]) -> str:
    """Moves each part; what a module holds directly goes without its children."""
    lines: list[str] = []
    for target in targets:
        device = quoted(devices[target.title])
        if target.title in direct:
            lines.append(f"{expression(target.title)}._apply(lambda tensor: tensor.to({device}), recurse=False)")
        else:
            lines.append(_to(target.thing, expression(target.title), devices[target.title]))
    return "\n".join([*([MOVE_LAZILY_IMPORT] if any("move_lazily" in line for line in lines) else []), *lines])


def _to(thing: nn.Module | Tensor, text: str, device: str) -> str:
    """Moves a whole module; lazy parameters need help onto a virtual GPU."""
    held = () if isinstance(thing, Tensor) else (*thing.parameters(), *thing.buffers())
    if device.partition(":")[0] == KIND and any(map(is_uninitialised, held)):
        return f"move_lazily({text}, {quoted(device)})"
    return f"{text}.to({quoted(device)})"


def join(name: str, model: nn.Module, device: str, *, hops: bool, hooks: bool) -> str:
    """Moves everything to one device, without hops and without hooks of accelerate."""
    lines = []
    if hooks:
        lines += [
            "from accelerate.hooks import remove_hook_from_submodules\n",
            f"remove_hook_from_submodules({variable(name)})",
            f'vars({variable(name)}).pop("hf_device_map", None)',
        ]
    if hops:
        lines.append(unfollow(name))
    moved = _to(model, variable(name), device)
    return "\n".join([*([MOVE_LAZILY_IMPORT] if "move_lazily" in moved else []), *lines, moved])


def plan(plan: SplitPlan) -> str:
    """Says the plan itself, and not how accelerate was asked: what it answers is repaired, and it knows no virtual
    GPUs."""
    room = ", ".join(f"{bytes_text(share.budget_bytes)} on {share.device}" for share in plan.shares)
    lines = [f"    {quoted(block.path)}: {quoted(block.device)}," for block in plan.blocks]
    return "\n".join(
        [f"# a plan for {variable(plan.target)} within {room}", "device_map = {", *lines, "}", "print(device_map)"]
    )


def hops_variable(name: str) -> str:
    """The Python variable of the hops of a model."""
    return f"{variable(name)}_hops"


def opened_hops(name: str) -> str:
    """Names those of a model that came with a workspace file (`_opened`)."""
    return f"{hops_variable(name)} = _opened.hops({quoted(name)})"
