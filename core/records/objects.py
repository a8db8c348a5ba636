"""Objects of the workspace as the window sees them: placement snapshots and move reports. Plain frozen records, made on
any thread."""

from __future__ import annotations

from typing import Literal

import msgspec

from devexplorer.core.records.base import Record


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of the object tree: a module, or a tensor inside it. Depth first, parents before children.

    A large model has 60,000 of them: on the link they are lists without field names, and the garbage collector does not
    look at them (they hold texts, numbers and tuples of those, so there is nothing that it could find).
    """

    path: str
    """As `state_dict` and `get_submodule` spell it, below the object: `features.0.weight`; "" for the object itself.
    Gradients end in `.grad`; what is reachable but not registered is written as Python would: `heads[0].weight`."""
    name: str
    """Last part of the path; may hold spaces (`block 0`)."""
    kind: str
    """`module`, `parameter`, `buffer`, `gradient`, `tensor` (a workspace tensor, or an unregistered one inside a
    model), `state` (of the optimizer, below its parameter: `0.weight.exp_avg`)."""
    type: str
    """Class name: `Linear`, `Parameter`, `Tensor`."""
    depth: int
    """0 for the object itself; the parent is the nearest earlier row with depth - 1."""
    shape: tuple[int, ...] | None = None
    """None for modules and for parameters that are still uninitialised."""
    dtype: str | None = None
    """As torch writes it, without `torch.`; for a module the dtype that all its floating-point tensors share
    (all its tensors, where none is floating-point), else None."""
    devices: tuple[str, ...] = ()
    """A tensor's one device; for a module every device that holds one of its tensors, sorted; empty when it holds
    none."""
    bytes: int = 0
    """A tensor's elements × element size; a module's sum over its registered tensors, a tied one counted once."""
    elements: int = 0
    requires_grad: bool | None = None
    tied_to: str | None = None
    """The first path of the very same tensor object, when this is not the first."""
    registered: bool = True
    """False for modules and tensors in plain lists, dicts or attributes: `.to()`, `parameters()`, `state_dict()` do not
    see them."""
    initialised: bool = True
    """False for a lazy parameter before its first forward."""
    is_leaf: bool | None = None
    grad_fn: str | None = None
    storage: int | None = None
    """Address of the storage, to see whether two tensors share memory."""
    identity: int | None = None
    """`id()` of the Python object in the engine."""


class ObjectSnapshot(Record):
    """One named object and everything in it, read without changing anything."""

    name: str
    kind: str
    """`model` or `tensor`."""
    type: str
    rows: tuple[Row, ...]
    bytes_by_device: dict[str, int]
    """Registered tensors and gradients, each tensor object once."""
    tensors_by_device: dict[str, int]
    training: bool | None = None
    values: str | None = None
    """Small tensors only: the values as torch prints them."""
    source: str | None = None
    """What a model was made from, as `OpenModel.source` or a sample model's name; None: not known."""
    folder: str = ""
    """The folder that was importable when the user's own code made it; empty where something else did."""
    outdated: tuple[str, ...] = ()
    """Files of the user that have changed since the model was made of them."""
    stored: tuple[str, str] | None = None
    """Of a model that came from a workspace file and whose code has not run: source and folder; empty where there is
    no source."""
    optimizer: str | None = None
    """The optimizer that a model has here: `Adam, lr 0.001`."""
    hops: bool = False
    """Its parts fetch what they are given to their own devices (`InsertHops`)."""
    dispatched: str | None = None
    """Which library placed it with its own hooks, and what that means, in a sentence; None: none did."""


class Hop(Record):
    """Activations that went to another device during a forward."""

    before: str
    """Path of the module that they came from; empty: the model's input."""
    after: str
    """Path of the module that fetched them."""
    source: str
    destination: str
    bytes: int
    seconds: float | None = None
    """On the clock of the devices; None: not measured."""
    simulated: bool = False


class CastError(Record):
    """What a cast did to the values, summed over all tensors that it could harm."""

    elements: int
    """Values that were looked at."""
    changed: int
    """Values that are not the same any more."""
    largest_change: float
    """Of the values that were and are finite."""
    largest_relative_change: float
    """The same, divided by the size of the value before; of values other than 0."""
    overflowed: int
    """Finite values that became Inf; with whole numbers: that were out of range and are something else now."""
    underflowed: int
    """Values that became 0."""
    nans: int
    """Values that became NaN."""
    worst: str
    """Path of the tensor with the largest relative change, overflows and NaN first; empty for a tensor of the
    workspace."""


MoveKind = Literal["move", "cast", "copy"]


class MoveReport(Record):
    """What one move did, in numbers. The words for it are made from this record by `core.commands.messages`."""

    objects: tuple[str, ...]
    """What was moved: object names, or `name:path` for a part of a model."""
    source: tuple[str, ...]
    """Devices that the tensors came from, sorted."""
    destination: str
    dtype: str | None
    """The dtype asked for, or None when it stayed."""
    parameters: int
    """Tensors moved, by role; a tied one counts once."""
    buffers: int
    gradients: int
    tensors: int
    bytes: int
    """Copied to the destination, in the new dtype."""
    seconds: float
    """On the clock of the device: simulated when `simulated`, else wall time with the device synchronised."""
    wall_seconds: float
    gb_per_s: float | None
    """Decimal GB/s from `bytes` and `seconds`; None when nothing was copied."""
    simulated: bool
    copied: bool = False
    """True for "Copy to": the original stayed and `created` names the new object."""
    created: tuple[str, ...] = ()
    same_object: bool = True
    """The Python objects are the same as before (models and parameters, or a tensor that was already there)."""
    already_there: bool = False
    """Nothing had to be done."""
    lossy: bool = False
    """The cast can lose precision or range, so that moving back would not restore the bits."""
    uninitialised: int = 0
    """Lazy parameters: nothing to copy yet, but they will be created on the destination."""
    left_behind: tuple[str, ...] = ()
    """Paths of unregistered tensors inside the objects that did not move along."""
    before: dict[str, int] = msgspec.field(default_factory=dict)
    """Bytes of the moved objects per device, before and after."""
    after: dict[str, int] = msgspec.field(default_factory=dict)
    kept_for_undo_bytes: int = 0
    losses: CastError | None = None
    """What a cast that can lose did to the values; None: it cannot, or counting failed."""

    @property
    def kind(self) -> MoveKind:
        """`copy`: the original stays. `cast`: nothing left its device, the dtype alone changed. `move`: everything
        else."""
        if self.copied:
            return "copy"
        return "cast" if ", ".join(self.source) == self.destination else "move"
