"""Carries out forward and backward of named models, with what Undo needs to take back what they leave. Runs on the jobs
thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from devexplorer.core.base import python_names
from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.progress import NO_PROGRESS
from devexplorer.core.models.inputs import sampled
from devexplorer.core.records.messages import Backward, Forward
from devexplorer.core.workspace.changes import CreateChange
from devexplorer.core.workspace.mementos import ObjectMemento, before_leaves
from devexplorer.core.workspace.plan import MoveTarget
from devexplorer.core.workspace.reports import Ran

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


def forward(workspace: Workspace, command: Forward) -> Ran:
    """Run a model or a part of it; the output is kept, without its graph, only when it is given a name."""
    if command.output is not None:
        python_names.checked_name(command.output, workspace.names)
    ran, output = _run(workspace, command)
    if command.output is None:
        return ran
    if output is None:
        raise BadInput(f"'{command.target}' returned no tensor that could be named '{command.output}'")
    name = workspace.add(command.output, output.detach())
    workspace.changed(f"the new tensor {name}", CreateChange((name,)), command=command)
    return ran._replace(kept_as=name)


def backward(workspace: Workspace, command: Backward) -> Ran:
    """Forward, sum, backward: gradients are added to those that are there."""
    ran, _ = _run(workspace, command)
    return ran


def given_names(text: str | None) -> tuple[str, ...]:
    """`x, y` -> the names of two tensors."""
    return () if text is None else tuple(part.strip() for part in text.split(","))


def inputs_of(workspace: Workspace, aim: MoveTarget, given: Sequence[str]) -> list[Tensor]:
    """The named tensors; or else what the model takes as far as it is known or can be guessed, on its device and in its
    dtype."""
    if given or isinstance(aim.thing, Tensor):
        return [workspace.tensor_named(name) for name in given]
    if aim.path:
        raise BadInput(f"'{aim.title}' needs an input; create a tensor and choose it")
    return sampled(aim.thing, aim.name, workspace.extras(aim.name))


def before_inputs(workspace: Workspace, given: Sequence[str], inputs: Sequence[Tensor]) -> list[ObjectMemento]:
    """Images of the tensors that a backward from these inputs brings gradients to."""
    objects: dict[str, nn.Module | Tensor] = {name: workspace.get(name) for name in workspace.names}
    return before_leaves(objects, dict(zip(given, inputs, strict=True))) if given else []


def reached(leaves: Sequence[ObjectMemento]) -> tuple[str, ...]:
    """The names of the objects that these are images of."""
    return tuple(dict.fromkeys(image.name for image in leaves))


def _run(workspace: Workspace, command: Forward | Backward) -> tuple[Ran, Tensor | None]:
    aim, back = workspace.aim(command.target), isinstance(command, Backward)
    fed = given_names(command.input)
    inputs = inputs_of(workspace, aim, fed)
    before = [workspace.before(aim.name, gradients=back, buffers=True, within=aim.path)]
    leaves = before_inputs(workspace, fed, inputs) if back else []
    before += leaves
    try:
        ran, output = workspace.runner.run(aim, inputs, fed, backward=back)
        if ran.changed_buffers or ran.initialised or back:
            _ran(workspace, f"the {'backward' if back else 'forward'} of {aim.title}", before, command)
        return ran._replace(reached=reached(leaves)), output
    except BaseException:  # it can have come far enough to change statistics, or to give lazy parameters their shape
        for image in before:
            if image is not None:
                image.undo(workspace, NO_PROGRESS)
        raise
    # the first forward of a lazy model makes its parameters; gradients arrive in every tensor that led to an input
    finally:
        workspace.publish(aim.name, *reached(leaves))


def _ran(workspace: Workspace, title: str, before: Sequence[ObjectMemento | None], command: Forward | Backward) -> None:
    if None in before:
        workspace.history.cannot_undo()
    else:
        workspace.changed(title, *(image for image in before if image is not None), command=command)
