"""The model that is planned for, made without values where its code lets it be, with emulated cards where it asks for
CUDA; the tokens of mixtures of experts; and what its forward takes. In the planner's process."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, bytes_text, first_line
from devexplorer.core.models import (
    NamedBuilder,
    builder_of,
    bytes_of,
    error_text,
    is_irregular,
    is_lazy,
    parameters_and_buffers,
    specs_for,
    tensors_for,
)
from devexplorer.core.models.samples.registry import InputSpec
from devexplorer.core.planner.records import PlannedTensor
from devexplorer.core.virtual.cuda.emulation import CudaEmulation, names_cuda
from devexplorer.core.virtual.cuda.on_cpu import OnCpu

_CHOICE = "_experts_implementation"
NAME = "devexplorer_experts"
"""Under which transformers knows this way to run them."""
EQUAL_SHARES = "Every expert is as likely as the others, and those that are chosen get equal shares."


def has_experts(model: nn.Module) -> bool:
    """Whether it has any that transformers 5 runs in a way that can be chosen."""
    return any(_configs(model))


def _configs(model: nn.Module) -> Iterator[Any]:
    """What says how each layer of experts is run."""
    if "transformers.integrations.moe" in sys.modules:
        for layer in model.modules():
            config = getattr(layer, "config", None)
            if hasattr(layer, "has_gate") and hasattr(layer, "num_experts") and hasattr(config, _CHOICE):
                yield config


@contextmanager
def equal_shares(model: nn.Module) -> Iterator[None]:
    """Have its experts run so."""
    before = {id(config): (config, getattr(config, _CHOICE)) for config in _configs(model)}
    if before:
        sys.modules["transformers.integrations.moe"].ALL_EXPERTS_FUNCTIONS.register(NAME, experts)
    for config, _ in before.values():
        setattr(config, _CHOICE, NAME)
    try:
        yield
    finally:
        for config, own in before.values():
            setattr(config, _CHOICE, own)


def chosen_experts(experts: int, tokens: int, each: int) -> int:
    """How many of them get a token, where every token takes `each` different ones and all are as likely."""
    return min(experts, math.ceil(experts * (1 - (1 - each / experts) ** tokens)))


def experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The experts of one layer: those that are expected to be chosen get equal shares of the tokens."""
    tokens, each = top_k_index.shape
    count = chosen_experts(self.num_experts, tokens, each)
    rows = -(-tokens * each // count)
    order = torch.empty(count * rows, dtype=torch.int64, device=hidden_states.device)
    given = hidden_states.index_select(0, order).view(count, rows, -1)
    first = "gate_up_proj" if self.has_gate else "up_proj"
    wide = _expert_product(self, first, given, count)
    wide = self._apply_gate(wide) if self.has_gate else self.act_fn(wide)
    narrow = _expert_product(self, "down_proj", wide, count).view(count * rows, -1)[: tokens * each]
    weighted = narrow * top_k_weights.reshape(-1, 1).to(narrow.dtype)
    return weighted.view(tokens, each, -1).sum(1).to(hidden_states.dtype)


def _expert_product(self: Any, name: str, given: Tensor, count: int) -> Tensor:
    packed = getattr(self, f"{name}_packed", None)
    if packed is not None:
        return packed(given, count)  # type: ignore[no-any-return]
    weight = getattr(self, name)[:count]
    if not self.is_transposed:
        weight = weight.transpose(1, 2)
    product = torch.bmm(given, weight)
    bias = getattr(self, f"{name}_bias", None)
    return product if bias is None else product + bias[:count, None]


NOTE = "Its code asks for CUDA: it ran with emulated CUDA cards, as in the placement doctor."


def mixes_devices(error: BaseException) -> bool:
    """Whether torch refused operands from several devices, by the first line of the innermost exception."""
    while error.__cause__ is not None:
        error = error.__cause__
    return "on the same device" in first_line(error)


VALUES_BYTES = 1 << 30
"""A model up to this size is made with values when it cannot do without: it takes that much of this machine, two
times."""


@dataclass
class Subject:
    """A model, not on any GPU. Runs get copies of it."""

    title: str
    model: nn.Module
    specs: tuple[InputSpec, ...]
    """Inputs of any batch; the first dimension is replaced."""
    values: bool
    """Whether the model was made with values."""
    _builder: NamedBuilder | None = None
    """None: the model is all there is."""
    _inputs: str = ""
    _tensors: tuple[PlannedTensor, ...] = ()
    imitated: bool = False
    """Whether its code saw emulated CUDA cards."""
    changed: int = 0
    """How many tensors are not as its source makes them."""

    @property
    def parameters(self) -> int:
        """Elements; tied ones once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def inputs(self, batch: int) -> list[InputSpec]:
        """What forward gets with this batch."""
        return [spec.with_batch(batch) for spec in self.specs]

    def with_values(self, why: BaseException) -> Subject:
        """The same model made with values. Raises `BadInput`, with `why` it failed without, where that would take too
        much memory."""
        needed = bytes_of(parameters_and_buffers(self.model))
        if needed > VALUES_BYTES:
            raise BadInput(
                f"'{self.title}' failed without values ({error_text(why)}); it was not tried with them, as they would"
                f" take {bytes_text(needed)} of this machine's memory, more than the {bytes_text(VALUES_BYTES)} that"
                " the planner takes for a model; plan for a smaller one"
            ) from why
        model = self.model
        with _cards(self.imitated):
            if not self.values and self._builder is not None:
                model = _with_values(self._builder)
            _complete(model, self.specs)
            if model is not self.model:
                change_tensors(self.title, model, self._tensors)
        return replace(self, model=model, values=True)

    def with_cuda_emulation(self) -> Subject:
        """The same model, built by code that sees emulated CUDA cards. Raises `BadInput`."""
        if self._builder is None:
            return self
        with _cards(True):
            return replace(_subject(self._builder, self._inputs, self._tensors), imitated=True)


def subject_of(source: str, folder: str, inputs: str, tensors: Sequence[PlannedTensor] = ()) -> Subject:
    """Build the model and find out what it takes. Raises `BadInput` in one line when there is none, its inputs are
    unknown, or it has not these `tensors`."""
    builder = builder_of(source, folder)
    try:
        return _subject(builder, inputs, tuple(tensors))
    except BadInput as error:
        if not (names_cuda(error) or mixes_devices(error)):
            raise
        with _cards(True):
            return replace(_subject(builder, inputs, tuple(tensors)), imitated=True)


@contextmanager
def _cards(imitated: bool) -> Iterator[None]:
    """Around the construction of a model. `imitated`: cards exist, and what is put on them stays where it is."""
    if not imitated:
        yield
        return
    with CudaEmulation(1), OnCpu():
        yield


def _subject(builder: NamedBuilder, inputs: str, tensors: tuple[PlannedTensor, ...]) -> Subject:
    try:
        model = builder.build_without_values()
        values = is_lazy(model)
    except BadInput:  # perhaps it needs values; a mistake in the code shows again
        values = True
    if values:
        model = _with_values(builder)
    try:
        specs = _specs(builder, model, inputs)
    except BadInput:
        if values or bytes_of(parameters_and_buffers(model)) > VALUES_BYTES:
            raise
        model, values = _with_values(builder), True
        specs = _specs(builder, model, inputs)
    _complete(model, specs)
    for path, module in model.named_modules():
        if any(isinstance(value, torch.ScriptObject) for value in vars(module).values()):
            layer = path.removesuffix("._packed_params") or type(module).__name__
            raise BadInput(
                f"'{layer}' of '{builder.title}' holds packed weights, as torch.ao quantises them: they run on the CPU"
                " only, on no GPU"
            )
    changed = change_tensors(builder.title, model, tensors)
    return Subject(builder.title, model, specs, values, builder, inputs, tensors, changed=changed)


def change_tensors(title: str, model: nn.Module, tensors: Sequence[PlannedTensor]) -> int:
    """Make a model that its source has just made have these parameters and buffers: shapes, dtypes, what is trained and
    what is tied. Returns how many were otherwise. Raises `BadInput` where there are others altogether."""
    if not tensors:
        return 0
    there = dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])
    missing = [each.path for each in tensors if each.path not in there]
    if missing:
        raise BadInput(
            f"'{title}' makes a model without '{missing[0]}', which the one in the workspace has, so that one cannot be"
            " planned for; create it again from its source"
        )
    changed: set[str] = set()
    own: dict[int, str] = {}
    for each in tensors:
        holder = model.get_submodule(each.path.rpartition(".")[0])
        name = each.path.rpartition(".")[2]
        tensor = getattr(holder, name)
        first = own.get(id(tensor), each.path)
        if each.tied_to is not None:
            if first != each.tied_to:
                setattr(holder, name, there[each.tied_to])
                changed.add(each.path)
            continue
        if first != each.path:
            tensor = nn.Parameter(tensor.detach().clone()) if isinstance(tensor, nn.Parameter) else tensor.clone()
            setattr(holder, name, tensor)
            changed.add(each.path)
        own[id(tensor)], there[each.path] = each.path, tensor
        if not is_irregular(tensor) and (tensor.shape, str(tensor.dtype)) != (each.shape, f"torch.{each.dtype}"):
            dtype = getattr(torch, each.dtype)
            same = tensor.shape == each.shape
            tensor.data = tensor.detach().to(dtype) if same else tensor.detach().new_zeros(each.shape, dtype=dtype)
            changed.add(each.path)
        if tensor.requires_grad != each.trains:
            tensor.requires_grad_(each.trains)
            changed.add(each.path)
    return len(changed)


def _with_values(builder: NamedBuilder) -> nn.Module:
    with torch.device("cpu"):
        return builder.build(0)


def _specs(builder: NamedBuilder, model: nn.Module, given: str) -> tuple[InputSpec, ...]:
    known = None if given.strip() else builder.specs()
    return specs_for(model, builder.title, given) if known is None else known


def _complete(model: nn.Module, specs: Sequence[InputSpec]) -> None:
    """Lazy parameters get their shapes from a forward."""
    if is_lazy(model):
        try:
            with torch.no_grad():
                model(*tensors_for(model, specs, batch=2))  # batch normalisation trains on more than one sample
        except Exception as error:
            raise BadInput(
                f"the forward that would give lazy parameters their shapes failed: {error_text(error)}"
            ) from error
