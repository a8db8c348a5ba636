"""Answers about splits (what a plan would do, what a split did, how activations hopped), and the Python that does it
with torch alone, unless a lazy part waits on a virtual GPU. Pure functions, jobs thread.

Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from torch import Tensor, nn

from devexplorer.core.base import (
    MOVE_LAZILY_IMPORT,
    bytes_by_device_text,
    bytes_text,
    count_text,
    expression,
    object_name,
    quoted,
    seconds_text,
    variable,
)
from devexplorer.core.models import Dispatched, RunFailed, fetches_inputs, is_uninitialised
from devexplorer.core.records import Answer, Command, Fact, Hop, Move, MoveOptimizer, Offer
from devexplorer.core.split.records import InsertHops, Join, SplitPlan
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


FOLLOW = (
    "Each part now moves its inputs to its own device, and the model's output returns to the device of its"
    " input. Gradients take the same way back."
)
FEW_HOPS = 6
"""Hops that are listed one by one."""


def planned(plan: SplitPlan, code: str, offers: tuple[Offer, ...]) -> Answer:
    """A plan; nothing has moved."""
    used = [share for share in plan.shares if share.used_bytes]
    shares = ", ".join(f"{bytes_text(share.used_bytes)} on {share.device}" for share in used)
    blocks = count_text(len(plan.blocks), "block")
    if len(used) == 1:
        words = (
            f"All of {plan.target} fits on {used[0].device}: {blocks}, {shares}. It need not be split; smaller budgets"
            " would spread it."
        )
    else:
        words = (
            f"{blocks}: {shares}. If they run in this order, activations cross to another device"
            f" {'once' if plan.hops == 1 else count_text(plan.hops, 'time')} per forward pass."
        )
    tied = sum(bool(block.tied_with) for block in plan.blocks)
    if tied:
        words += f" {count_text(tied, 'block')} share tensors and stay together."
    words = " ".join([words, *plan.warnings, "Nothing has moved yet."])
    facts = [
        Fact(share.device, f"{bytes_text(share.used_bytes)} of {bytes_text(share.budget_bytes)}")
        for share in plan.shares
    ]
    title = f"A plan for {plan.target}: {count_text(len(used), 'device')}"
    return Answer(title=title, words=words, facts=tuple(facts), code=code, offers=offers, subject=plan.target)


def split(
    name: str,
    held: Mapping[str, int],
    moved_bytes: int,
    code: str,
    *,
    hops_were_there: bool,
    optimizer: bool,
    waiting: int = 0,
) -> Answer:
    """A model that was split; `held` are its bytes by device, `waiting` counts its lazy parameters."""
    where = bytes_by_device_text(held)
    several = len(held) > 1
    words = (
        f"{where}; {bytes_text(moved_bytes)} moved."
        if moved_bytes or waiting
        else f"{where}; everything was there already."
    )
    if waiting:
        words += f" {count_text(waiting, 'parameter')} without a shape will be created on the devices of their parts."
    words += " Its hops stay as they are." if hops_were_there else f" {FOLLOW}"
    offers: list[Offer] = []
    if optimizer:
        words += " The optimizer's state is where it was."
        offers.append(Offer("Move the optimizer's state along", MoveOptimizer(target=name)))
    title = f"{name} is split over {' and '.join(held)}" if several else f"All of {name} is on {' and '.join(held)}"
    facts = tuple(Fact(device, bytes_text(size)) for device, size in held.items())
    return Answer(title=title, words=words, facts=facts, code=code, offers=tuple(offers), subject=name)


def followed(name: str, held: Mapping[str, int], code: str, *, on: bool) -> Answer:
    """Hops were inserted in a model whose parts are where they were, or removed from it."""
    places = " and ".join(held) or "no device"
    if on:
        title, words = f"Activations follow the parts of {name}", FOLLOW
        if len(held) < 2:
            words += f" All of it is on {places} now, so nothing hops before a part is moved."
    else:
        title, words = f"{name} no longer has hops", "Activations no longer follow the parts."
        if len(held) > 1:
            words += f" Its parts are on {places}, so a forward fails between them."
    return Answer(title=title, words=words, code=code, subject=name)


def joined(name: str, device: str, moved_bytes: int, code: str, *, hops: bool, hooks: bool) -> Answer:
    """A model that is on one device again."""
    words = f"{bytes_text(moved_bytes)} moved." if moved_bytes else "All of it was there already."
    if hooks:
        words += " The hooks of accelerate and its device map were removed: the model can be moved again."
    if hops:
        words += " The hops were removed: everything is on one device."
    return Answer(title=f"{name} is on {device}", words=words, code=code, subject=name)


def with_hops(answer: Answer, hops: Sequence[Hop]) -> Answer:
    """The answer of a forward, and how activations hopped during it."""
    if not hops:
        return msgspec.structs.replace(
            answer, words=f"{answer.words} No activation had to hop: everything was where it was needed."
        )
    simulated = any(hop.simulated for hop in hops)
    known = [hop.seconds for hop in hops if hop.seconds is not None]
    took = f", {seconds_text(sum(known), simulated)}" if known else ""
    words = f"Activations hopped {count_text(len(hops), 'time')}: {bytes_text(sum(hop.bytes for hop in hops))}{took}."
    facts = [Fact(f"hop to {hop.after or 'the output'}", hop_text(hop)) for hop in hops[:FEW_HOPS]]
    if len(hops) > FEW_HOPS:
        facts.append(Fact("further hops", str(len(hops) - FEW_HOPS)))
    return msgspec.structs.replace(answer, words=f"{answer.words} {words}", facts=(*answer.facts, *facts))


def hop_text(hop: Hop) -> str:
    """`8.0 KiB from vgpu:0 to vgpu:1, 7.2 µs (simulated)`."""
    took = "" if hop.seconds is None else f", {seconds_text(hop.seconds, hop.simulated)}"
    return f"{bytes_text(hop.bytes)} from {hop.source} to {hop.destination}{took}"


def ways_out(error: Exception, command: Command | None) -> tuple[str, list[Offer]]:
    """What can be done where the parts of a model are on several devices: words and offers."""
    if isinstance(error, Dispatched):
        device = command.device or "cpu" if isinstance(command, Move) else "cpu"
        return "", [Offer(f"Join {error.name} on {device}", Join(target=error.name, device=device))]
    if not isinstance(error, RunFailed) or error.frame is None:
        return "", []
    if fetches_inputs(error.frame.module):
        words = (
            " Hops bring inputs to each part, not tensors that the part holds or creates elsewhere: move the model to"
            " one device."
        )
        return words, []
    words = (
        " The model's parts are on different devices: move them together, or move the activations where they meet"
        " (hops)."
    )
    return words, [Offer("Insert hops", InsertHops(target=object_name(getattr(command, "target", ""))))]
