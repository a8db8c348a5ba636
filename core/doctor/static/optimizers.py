"""Rule `optimizer-before-move`: optimizers that the model itself holds. The main thread."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor
from torch.optim.optimizer import Optimizer

from devexplorer.core.base.formats import count_text
from devexplorer.core.doctor.static.attribute_refs import AttributeRef
from devexplorer.core.doctor.static.model_context import bytes_of
from devexplorer.core.doctor.static.registry import Registry
from devexplorer.core.models.walk import device_id, is_uninitialised


def optimizers(ref: AttributeRef) -> list[Optimizer]:
    """Those that an attribute leads to."""
    return [item.thing for item in ref.attribute.things if isinstance(item.thing, Optimizer)]


def given(optimizer: Optimizer) -> list[Tensor]:
    """The tensors that an optimizer was given."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"] if isinstance(tensor, Tensor)]


def report_lazy(ref: AttributeRef, optimizer: Optimizer) -> None:
    """A finding where an optimizer was given parameters that have no shape yet."""
    waiting = [tensor for tensor in given(optimizer) if is_uninitialised(tensor)]
    if waiting:
        ref.report(
            "lazy-parameter",
            f"{ref.label} was given {count_text(len(waiting), 'lazy parameter')} before the first forward: without a"
            " shape there is nothing to optimise yet.",
            "Run the model once with a sample input, then make the optimizer.",
        )


def report_optimizer(
    ref: AttributeRef,
    optimizer: Optimizer,
    registry: Registry,
    hidden: Collection[int],
    moved: bool,
) -> None:
    """A finding where the optimizer's tensors are not the model's any more, or its state is on another device than its
    parameter.

    `hidden` are ids of tensors about which there is a finding already; `moved`: whether the move has copied anything.
    """
    lost = [tensor for tensor in given(optimizer) if id(tensor) not in registry.tensor_ids and id(tensor) not in hidden]
    kind = type(optimizer).__name__
    if lost:
        ref.report(
            "optimizer-before-move",
            f"{ref.label} ({kind}) holds {count_text(len(lost), 'tensor')} that the model does not have as a parameter"
            " (any more): its steps change nothing there.",
            "Make the optimizer after the model has been moved, from model.parameters().",
            bytes=bytes_of(lost),
        )
        return
    behind: list[Tensor] = []
    device = None
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if (
                isinstance(value, Tensor)
                and not (name == "step" and value.dim() == 0)
                and (value.device != parameter.device or not moved)
            ):
                behind.append(value)
                device = parameter.device
    if behind and device is not None:
        where = device_id(behind[0].device)
        are = "is" if len(behind) == 1 else "are"
        problem = (
            f"on {where}, the parameters on {device_id(device)}"
            if moved
            else f"made already and will stay on {where} when the model moves"
        )
        ref.report(
            "optimizer-before-move",
            f"{ref.label} ({kind}) was made before the move: {count_text(len(behind), 'tensor')} of its state {are}"
            f" {problem}, and the next step fails.",
            "Make the optimizer after the model has been moved; load_state_dict(old.state_dict()) gives the new one the"
            " old one's state.",
            bytes=bytes_of(behind),
        )
