"""What is written after "out of memory": records, as JSON, and read again. Data; any thread, no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from devexplorer.core.base import BadInput, open_regular
from devexplorer.core.records import SentFrom
from devexplorer.core.records.base import BaseCommand, Record

MARK = b'{"devexplorer":"out of memory"'
"""How such a file begins."""
FILE_KIND = "out of memory"
SCHEMA = 1
MOST_BYTES = 64 << 20
"""Of a file that is read; those that are written have less than 1 MiB."""

CauseKind = Literal[
    "batch",
    "long_sequence",
    "activations",
    "graphs_in_container",
    "kept_graph",
    "no_grad_missing",
    "tensors_in_container",
    "fragmentation",
    "optimizer_state",
    "gradients",
    "second_model",
    "checkpoint",
    "one_tensor",
    "model_too_large",
    "other_processes",
    "largest_part",
]
Phase = Literal["forward", "backward", "optimizer step", "loading", "moving", "copying", "building", "script"]


class CodeLine(Record):
    """A line of the script, or of a library."""

    file: str
    line: int
    function: str = ""
    text: str = ""
    """As it is in the file."""


class MemoryCause(Record):
    """Why memory ran out."""

    kind: CauseKind
    text: str
    """One line."""
    evidence: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    """What would have made it fit, the most promising first."""


class UsedPart(Record):
    """What a share of the device's memory is used for."""

    name: str
    bytes: int
    tensors: int = 0


class LiveTensor(Record):
    """Memory that a tensor takes; several tensors can share it."""

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    device: str
    part: str
    name: str = ""
    """Of a parameter and what belongs to one: its path in the model."""
    made_at: CodeLine | None = None
    held_by: tuple[str, ...] = ()


class LiveModel(Record):
    """A root module with parameters on the device."""

    name: str
    """The variable that leads to it."""
    kind: str
    """Its class."""
    training: bool
    bytes_here: int
    """Of its parameters and buffers, on the device that is full."""
    bytes_in_all: int
    dtype: str
    """Of most of its parameters."""
    gradient_bytes: int = 0
    optimizer_bytes: int = 0


class TensorContainer(Record):
    """A list, a dict, … that holds many tensors."""

    name: str
    where: str
    tensors: int
    bytes: int
    graph_bytes: int = 0
    """What the graphs of its tensors have saved for backward."""
    with_graph: int = 0
    """Tensors that have a graph."""


class LayerActivations(Record):
    """What a layer, or what follows it before the next one with parameters, has saved for backward."""

    layer: str
    operation: str
    bytes: int


class GraphsHeld(Record):
    """The graphs of all live tensors together."""

    nodes: int
    bytes: int
    """Saved for backward, without parameters."""
    passes: int
    """Forward passes that they lead through."""
    earlier_bytes: int
    """Saved before the last step of an optimizer."""


class OutOfMemoryReport(Record):
    """The file. `schema` changes where a reader of an earlier one would misunderstand it."""

    devexplorer: Literal["out of memory"]
    schema: int
    cause: MemoryCause
    error: str
    """The message of the exception."""
    script: str
    arguments: tuple[str, ...]
    pid: int
    python: str
    torch: str
    time_unix_s: float
    device: str
    device_name: str
    simulated: bool
    phase: Phase
    place: CodeLine | None
    """Where memory ran out."""
    layer: str
    """The module whose forward ran; empty: none."""
    requested_bytes: int
    largest_free_bytes: int
    """The largest piece that was free."""
    capacity_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    parts: tuple[UsedPart, ...]
    models: tuple[LiveModel, ...]
    tensors: tuple[LiveTensor, ...]
    """The largest ones."""
    tensors_left_out: int
    bytes_left_out: int
    containers: tuple[TensorContainer, ...]
    graphs: GraphsHeld | None
    layers: tuple[LayerActivations, ...]
    lines: tuple[tuple[CodeLine, int], ...]
    """Lines that made what is there, with its bytes, where that is known."""
    seconds: float
    """What it took to find this out."""
    notes: tuple[str, ...] = ()
    """What is missing here, and why."""


class ExplainReport(BaseCommand, tag="ExplainReport"):
    """Read such a file; its answer is what it says."""

    path: str
    sent_from: SentFrom | None = None


def read(path: str) -> OutOfMemoryReport:
    """The report in a file; `BadInput` in one line where it is none."""
    try:
        with open_regular(Path(path).expanduser()) as file:
            data = file.read(MOST_BYTES)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} could not be read: {getattr(error, 'strerror', None) or error}") from error
    if not data.startswith(MARK):
        raise BadInput(f"{path} is not a report of DevExplorer about memory that ran out (devexplorer-oom-….json)")
    try:
        schema = msgspec.json.decode(data, type=_Versioned).schema
        if schema > SCHEMA:
            raise BadInput(f"{path} was written by a newer DevExplorer (schema {schema}; this one reads {SCHEMA})")
        return msgspec.json.decode(data, type=OutOfMemoryReport)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is damaged or cut off: {error}") from error


class _Versioned(msgspec.Struct):
    schema: int
