"""Commands of the placement laboratory and what answers them: own models, files, parameters. Any thread.

Those of the doctor, the planner and workspace files are in separate modules; the lists below hold them too. A target
is `name`, or `name:path` for a module, parameter or buffer of a model.
"""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import BaseCommand, BaseEvent, Record, SentFrom
from devexplorer.core.records.doctor import Checked
from devexplorer.core.records.workspace_file import (
    NewWorkspace,
    OpenWorkspace,
    RunModelCode,
    SaveWorkspace,
    WorkspaceFile,
)

# --- own models


class OpenModel(BaseCommand, tag="OpenModel"):
    """Build a model from the user's code or a library.

    `source` is one of `package.module:factory`, `path/to/file.py:factory`, `torchvision:resnet50`, `transformers:gpt2`
    or `transformers:path/to/config.json`, the last three with options behind a question mark:
    `transformers:gpt2?n_layer=2`. The window asks before it sends one that runs code of the user's; the engine tries it
    in a separate process first.
    """

    source: str
    folder: str = ""
    """The folder that is importable while it is built; empty: the engine's current one."""
    name: str | None = None
    device: str = "cpu"
    dtype: str | None = None
    seed: int = 0
    inputs: str = ""
    """Shapes of what forward gets, as `--input` takes them: `2x16:int64,4x12`; empty: a guess is made when it runs."""


class CompareCheckpoint(BaseCommand, tag="CompareCheckpoint"):
    """Say what a checkpoint would do to a model, without loading it. Answered with `CheckpointCompared`."""

    target: str
    path: str
    strip: str = ""
    """A prefix to remove from the file's keys: `module.`, as DataParallel leaves it."""


class LoadCheckpoint(BaseCommand, tag="LoadCheckpoint"):
    """Load the values of a checkpoint into a model, each to where its tensor is."""

    target: str
    path: str
    strip: str = ""
    partial: bool = False
    """Load what fits and leave the rest; without it, keys that are missing, unexpected or of another shape are a
    refusal."""
    sent_from: SentFrom | None = None


class KeyMismatch(msgspec.Struct, frozen=True):
    """A key whose shape differs."""

    key: str
    model: tuple[int, ...]
    file: tuple[int, ...]


class Comparison(Record):
    """A checkpoint compared with a model."""

    target: str
    path: str
    strip: str
    matching: int
    missing: tuple[str, ...]
    """Keys of the model that the file has not; at most a thousand are named, `missing_count` counts all."""
    unexpected: tuple[str, ...]
    """Keys of the file that the model has not."""
    mismatched: tuple[KeyMismatch, ...]
    casts: tuple[str, ...] = ()
    """Keys whose dtype would change on loading, with both dtypes."""
    missing_count: int = 0
    unexpected_count: int = 0
    mismatched_count: int = 0
    suggested_strip: str | None = None
    """A prefix that would make more keys match."""
    bytes: int = 0


class CheckpointCompared(BaseEvent, tag="CheckpointCompared"):
    """What was asked with `CompareCheckpoint`."""

    comparison: Comparison


# --- files


class Save(BaseCommand, tag="Save"):
    """Write objects to a file, whole or not at all."""

    targets: tuple[str, ...]
    """Tensors, models (their state dicts) or parts of models; empty: everything in the workspace."""
    path: str
    form: str = "safetensors"
    """`safetensors`, `pt` (a state dict, a tensor, or a dict of them, with torch.save) or `module` (a whole model with
    torch.save)."""
    named: bool = False
    """Keys begin with the name of their object, also where there is only one: `Load` makes the object again."""
    overwrite: bool = False
    sent_to: SentFrom | None = None
    """The file of another machine that this one is brought to."""


class ListFile(BaseCommand, tag="ListFile"):
    """Say what a file of tensors holds, without loading it. Answered with `FileListed`."""

    path: str
    sent_from: SentFrom | None = None


class Load(BaseCommand, tag="Load"):
    """Load tensors of a file as objects of the workspace."""

    path: str
    entries: tuple[str, ...] = ()
    """Keys to load; empty: all."""
    device: str = "cpu"
    name: str | None = None
    """Name of the one tensor; with several: the beginning of their names."""
    sent_from: SentFrom | None = None


class FileEntry(msgspec.Struct, frozen=True):
    """One tensor of a file, or one module of a workspace file."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


class FileContents(Record):
    """What a file holds."""

    path: str
    form: str
    """`safetensors`, `pt`, `pickle`, `sharded`, `workspace`, `npy`."""
    entries: tuple[FileEntry, ...]
    bytes: int
    count: int
    """Tensors in it; at most five thousand are listed."""
    saved_on: str | None = None
    """Devices on which the tensors were when they were saved, as far as the file says."""


class FileListed(BaseEvent, tag="FileListed"):
    """What was asked with `ListFile`."""

    contents: FileContents


# --- parameters


class Describe(BaseCommand, tag="Describe"):
    """Compute what the values of a tensor, parameter or buffer are like. Answered with `ValuesDescribed`; changes
    nothing."""

    target: str
    bins: int = 64
    exact: bool = False
    """Everything from every element, also where the tensor is so large that most of it would come from a sample."""


class Values(Record):
    """The values of one tensor, computed where it is."""

    target: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    elements: int
    simulated: bool
    mean: float | None = None
    """Of the finite values, as all that follow; None: there are none, or it has none (bool, complex)."""
    std: float | None = None
    """Of the population (divided by n)."""
    minimum: float | None = None
    maximum: float | None = None
    zeros: int = 0
    nans: int = 0
    infinities: int = 0
    counts: tuple[int, ...] = ()
    """Finite values per bin, from `low` to `high`, all bins equally wide."""
    low: float = 0.0
    high: float = 0.0
    first: str = ""
    """The first rows, as text."""
    norm: float | None = None
    """Euclidean."""
    gradient: Values | None = None
    seconds: float = 0.0
    sampled: int = 0
    """Elements, evenly spread, from which all but mean, NaN and Inf come in a large tensor; 0: every element."""


class ValuesDescribed(BaseEvent, tag="ValuesDescribed"):
    """What was asked with `Describe`, or what an `Initialise` left (`before` is what it found)."""

    values: Values
    before: Values | None = None


class Initialise(BaseCommand, tag="Initialise"):
    """Give a parameter, or every weight below a module, new initial values."""

    target: str
    rule: str
    """`normal`, `constant`, `uniform`, `xavier-uniform`, `xavier-normal`, `kaiming-uniform`, `kaiming-normal`, `zeros`,
    `ones` or `piecewise` (the tutorial's: uniform from `low` to `high`, kept where its size is at least `threshold`,
    else 0)."""
    options: dict[str, float] = msgspec.field(default_factory=dict)
    """`mean`, `std`; `value`; `low`, `high`; `gain`; `a`; `threshold`."""
    biases: bool = False
    """With a module: also parameters of one dimension, which get zeros under the Xavier and Kaiming rules."""
    seed: int = 0


class Tie(BaseCommand, tag="Tie"):
    """Let the second target be the very Parameter that the first one is. Two parameters of one model, of one shape."""

    first: str
    second: str


class Untie(BaseCommand, tag="Untie"):
    """Give this name a separate Parameter again, with the same values."""

    target: str


class SetRequiresGrad(BaseCommand, tag="SetRequiresGrad"):
    """Freeze (off) or unfreeze parameters, everything below modules, or tensors."""

    targets: tuple[str, ...]
    on: bool


class ClearGradients(BaseCommand, tag="ClearGradients"):
    """Set the gradients below the target to None and free their memory."""

    target: str


class SetTraining(BaseCommand, tag="SetTraining"):
    """`model.train()` or `model.eval()`."""

    target: str
    on: bool


class MakeOptimizer(BaseCommand, tag="MakeOptimizer"):
    """Give a model an optimizer over its parameters, instead of the one it has."""

    target: str
    kind: str = "adam"
    """`sgd`, `momentum` (SGD with momentum 0.9), `adam` or `adamw`; `none` removes it."""
    learning_rate: float = 1e-3


class TrainStep(BaseCommand, tag="TrainStep"):
    """zero_grad, forward, backward of the output's sum, step."""

    target: str
    input: str | None = None


class MoveOptimizer(BaseCommand, tag="MoveOptimizer"):
    """Move the optimizer's state to where the parameters are that it belongs to."""

    target: str


LABORATORY_COMMANDS: tuple[type[BaseCommand], ...] = (
    OpenModel,
    CompareCheckpoint,
    LoadCheckpoint,
    Save,
    ListFile,
    Load,
    SaveWorkspace,
    OpenWorkspace,
    NewWorkspace,
    RunModelCode,
    Describe,
    Initialise,
    Tie,
    Untie,
    SetRequiresGrad,
    ClearGradients,
    SetTraining,
    MakeOptimizer,
    TrainStep,
    MoveOptimizer,
)

LABORATORY_RESULTS: tuple[type[BaseEvent], ...] = (
    CheckpointCompared,
    FileListed,
    WorkspaceFile,
    ValuesDescribed,
    Checked,
)
