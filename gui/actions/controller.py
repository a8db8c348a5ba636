"""What the user can do, as methods: each checks what the window can know, and sends one command to the engine; what a
drag of objects carries, what a move would take along, and what dropping it on a device would do. Main thread, no
widgets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import QByteArray, QMimeData

from devexplorer.core.base import bytes_text, object_name
from devexplorer.core.records import (
    AddVirtual,
    Backward,
    BaseCommand,
    BenchSpec,
    BuildModel,
    Cancel,
    Combine,
    Command,
    Forward,
    Move,
    Remove,
    Row,
    StartBenchmark,
    StopBenchmark,
)
from devexplorer.core.session import Ints, RowTable, State
from devexplorer.gui.widgets import is_only_shown, why_not_live

MIME = "application/x-devexplorer-objects"
"""UTF-8 JSON: a list of targets, each `name` or `name:path`."""


class DropVerdict(NamedTuple):
    """What a drop would do: whether it is allowed, and the words on the card."""

    allowed: bool
    words: str
    nothing_to_do: bool = False
    """Not allowed only because it would change nothing."""


class HeldTensors(NamedTuple):
    """Tensors of one object."""

    outline: RowTable
    places: Ints
    """Their rows, each tensor once."""


class Movable(NamedTuple):
    """What a move is asked for."""

    targets: tuple[str, ...]
    words: str
    """What the user should know about it; empty when the targets are what was chosen."""


def encode(targets: tuple[str, ...]) -> QMimeData:
    """Targets as a drag carries them; other programs get them as text."""
    data = QMimeData()
    data.setData(MIME, QByteArray(json.dumps(targets, ensure_ascii=False).encode()))
    data.setText(" ".join(targets))
    return data


def decode(data: QMimeData) -> tuple[str, ...]:
    """The targets of a drag; empty for anything that is not ours, however it is broken."""
    return tuple(carried(data, MIME, str))


def carried(data: QMimeData, kind: str, of: type) -> list[Any]:
    """The list that a drag of ours carries; empty for anything else, however it is broken."""
    try:
        result = json.loads(bytes(data.data(kind).data()) or "[]")
    except ValueError:  # not UTF-8, or not JSON: another program used our name
        return []
    return result if isinstance(result, list) and all(isinstance(item, of) for item in result) else []


def split(target: str) -> tuple[str, str]:
    """`name:path` -> (`name`, `path`); the path of a whole object is empty."""
    name, _, path = target.partition(":")
    return name, path


def places_of(state: State, targets: Sequence[str]) -> dict[str, tuple[RowTable, list[int]]]:
    """Per object its outline and the rows of the targets in it; those that are gone are left out."""
    result: dict[str, tuple[RowTable, list[int]]] = {}
    for target in targets:
        name, path = split(target)
        if name not in result:
            snapshot = state.objects.get(name)
            if snapshot is None or not snapshot.rows:
                continue
            result[name] = (state.row_tables.of(snapshot), [])
        outline, places = result[name]
        index = outline.place(path)
        if index is not None:
            places.append(index)
    return {name: held for name, held in result.items() if held[1]}


def tensors_of(state: State, targets: Sequence[str]) -> list[HeldTensors]:
    """Every tensor that a move of `targets` takes along, once: tied and doubly named ones are not repeated."""
    return [HeldTensors(outline, outline.tensors(places)) for outline, places in places_of(state, targets).values()]


def movable(state: State, targets: Sequence[str]) -> Movable:
    """What is moved when these are chosen: a tensor inside a module goes with the module that holds it, for that is
    what PyTorch moves."""
    chosen: list[str] = []
    inner: list[tuple[str, str]] = []
    for name, (outline, places) in places_of(state, targets).items():
        holders = [outline.holder(index) for index in places]
        paths = outline.shape.paths
        inner += (
            (paths[index], _in_words(name, paths[above]))
            for index, above in zip(places, holders, strict=True)
            if index != above
        )
        end = 0
        for index in sorted(set(holders)):
            if index >= end:  # else it is in one that moves anyway
                end = outline.shape.ends[index]
                chosen.append(f"{name}:{paths[index]}" if paths[index] else name)
    if not inner:
        return Movable(tuple(targets), "")
    if len(inner) == 1:
        ((path, holder),) = inner
        return Movable(tuple(chosen), f"{path} moves with what holds it: {holder}.")
    return Movable(tuple(chosen), f"{len(inner):,} of the chosen tensors move with the modules that hold them.")


def _in_words(name: str, path: str) -> str:
    return f"{path} of {name}" if path else name


def verdicts(state: State, targets: tuple[str, ...], devices: Iterable[str]) -> dict[str, DropVerdict]:
    """What dropping `targets` on each of these devices would do. Cached memory counts as free: the allocator uses it
    first."""
    held = tensors_of(state, movable(state, targets).targets)
    return {device: _verdict(state, held, device) for device in devices}


def _verdict(state: State, held: Sequence[HeldTensors], device_id: str) -> DropVerdict:
    device = state.devices.get(device_id)
    if device is None or not device.info.usable:
        return DropVerdict(False, "cannot hold tensors")
    if not any(len(part.places) for part in held):
        return DropVerdict(False, "nothing to move", nothing_to_do=True)
    tensors, size = _elsewhere(held, device_id)
    if not tensors:
        return DropVerdict(False, "already here", nothing_to_do=True)
    parts = device.parts
    if parts.free is None:
        return DropVerdict(True, "free memory is not known")
    left = parts.free + (parts.cached or 0) - size
    if left < 0:
        return DropVerdict(False, f"does not fit, needs {bytes_text(-left, 1)} more")
    return DropVerdict(True, f"fits, {bytes_text(left, 1)} left")


def _elsewhere(held: Sequence[HeldTensors], device: str) -> tuple[int, int]:
    """How many of these tensors are not on this device, and their bytes."""
    tensors = size = 0
    for outline, places in held:
        away = places[outline.column("devices").where(lambda devices: devices != (device,))[places]]
        tensors += len(away)
        size += int(outline.bytes[away].sum())
    return tensors, size


TWO_T4 = "2x Tesla T4"
"""What "add two virtual GPUs" adds: the pair of cards of the tutorial."""


NO_SELECTION = "Select an object in the list first."


class Controller:
    """`selection` is what the object tree has selected now; `say` shows one inline line to the user."""

    def __init__(
        self,
        state: State,
        send: Callable[[Command], int],
        selection: Callable[[], tuple[str, ...]],
        say: Callable[[str], None],
    ) -> None:
        self.state = state
        self.selection = selection
        self._send = send
        self._say = say
        self.asks: dict[type[BaseCommand], Callable[[Any, Callable[[Any], object]], object]] = {}
        """What features ask before commands of theirs are sent: given the command, and what sends it."""

    # --- why something cannot be done now (None: it can) --------------------------------------------------------------

    def why_no_engine(self) -> str | None:
        """Reason while the engine cannot take commands."""
        return why_not_live(self.state)

    def why_no_selection(self) -> str | None:
        """Reason when an object is needed and none is selected."""
        return self.why_no_engine() or (None if self.selection() else NO_SELECTION)

    def why_no_place(self) -> str | None:
        """Reason while nothing can be moved. A running script may allow moves, and nothing else."""
        engine = self.state.engine
        if engine is not None and engine.moves and is_only_shown(self.state):
            return None
        return self.why_no_engine()

    def why_no_move(self) -> str | None:
        """Reason why the selection cannot move anywhere."""
        alone = len(self.state.usable_devices) < 2
        if (reason := self.why_no_place()) is not None:
            return reason
        if not self.selection():
            return NO_SELECTION
        return (
            "There is only one device here, the CPU: add virtual GPUs to move things between devices."
            if alone
            else None
        )

    def why_no_model(self) -> str | None:
        """Reason when one model, or a part of one, is needed."""
        return self.why_no_selection() or (
            None if sum(map(self._is_model, self.selection())) == 1 else "Select one model, or one part of a model."
        )

    def row(self, target: str) -> Row | None:
        """The row of a target, where it is there."""
        return self.state.row_of(target)

    def why_no_pair(self) -> str | None:
        """Reason when two tensors are needed."""
        return self.why_no_engine() or (
            None if len(self._tensors()) == 2 else "Select two tensors (hold Ctrl and click)."
        )

    def why_no_undo(self) -> str | None:
        """Reason when there is nothing to undo."""
        return self.why_no_engine() or (None if self.state.undo.title is not None else "Nothing has been changed yet.")

    def why_no_redo(self) -> str | None:
        """Reason when there is nothing to redo."""
        return self.why_no_engine() or (None if self.state.undo.redo_title is not None else "Nothing has been undone.")

    def why_no_tour(self) -> str | None:
        """Reason why the tour cannot begin."""
        busy = self.state.objects or self.state.active_runs
        return self.why_no_engine() or (
            "The tour begins with an empty workspace: remove what is there first." if busy else None
        )

    def why_no_stop(self) -> str | None:
        """Reason when no benchmark runs here; those of a recording are over."""
        return self.why_no_engine() or (None if self.state.active_runs else "No benchmark is running.")

    def send(self, command: Command) -> None:
        """Send any command to the engine; one that a feature asks about first, after the question."""
        ask = self.asks.get(type(command))
        if ask is None:
            self._send(command)
        else:
            ask(command, self._send)

    # --- what can be done
    # ----------------------------------------------------------------------------------------------

    def build(self, recipe: str, device: str = "cpu") -> None:
        """Build a sample model."""
        self._send(BuildModel(recipe=recipe, device=device))

    def move(
        self, device: str, targets: Sequence[str] | None = None, *, dtype: str | None = None, copy: bool = False
    ) -> None:
        """Move (or copy) the given targets, or the selection, to a device."""
        if targets:
            reason = self.why_no_engine() if copy else self.why_no_place()
        elif copy:
            reason = self.why_no_selection()
        else:
            reason = self.why_no_move()
        if reason is not None:
            self._say(reason)
            return
        moved = movable(self.state, tuple(targets or self.selection()))
        if moved.words:
            self._say(moved.words)
        self._send(Move(targets=moved.targets, device=device, dtype=dtype, copy=copy))

    def cast(self, dtype: str) -> None:
        """Change the dtype of the selected objects; each tensor stays on its device."""
        self.move("", self.selection(), dtype=dtype)

    def forward(self) -> None:
        """Run the selected model, on the selected tensor if there is one."""
        self._send(Forward(target=self._runnable(), input=self.selected_input()))

    def backward(self) -> None:
        """Forward and backward of the selected model."""
        self._send(Backward(target=self._runnable(), input=self.selected_input()))

    def combine(self, operator: str) -> None:
        """Combine the two selected tensors."""
        left, right = self._tensors()
        self._send(Combine(left=left, right=right, operator=operator))

    def remove(self) -> None:
        """Remove the selected objects."""
        names = tuple(dict.fromkeys(map(object_name, self.selection())))
        self._send(Remove(names=names))

    def add_two_virtual(self) -> None:
        """Add two virtual GPUs of the card that the tutorials use."""
        self._send(AddVirtual(spec=TWO_T4))

    def benchmark(self, specs: Sequence[BenchSpec]) -> None:
        """Start one run per specification."""
        for spec in specs:
            self._send(StartBenchmark(spec=spec))

    def stop_benchmark(self) -> None:
        """Stop all runs."""
        self._send(StopBenchmark())

    def cancel(self, job: int) -> None:
        """Cancel a job; a benchmark is stopped, and what it measured is kept."""
        is_run = any(run.run == job for run in self.state.active_runs)
        self._send(StopBenchmark(run=job) if is_run else Cancel(job=job))

    # --- reading the selection
    # -----------------------------------------------------------------------------------------

    @property
    def selects_model(self) -> bool:
        """Whether a model, or a part of one, is selected."""
        return any(map(self._is_model, self.selection()))

    def _is_model(self, target: str) -> bool:
        snapshot = self.state.objects.get(object_name(target))
        return snapshot is not None and snapshot.kind == "model"

    def _model(self) -> str:
        return next(target for target in self.selection() if self._is_model(target))

    def _runnable(self) -> str:
        """The selected model, or module of one; of a tensor in it the whole model."""
        target = self._model()
        row = self.row(target)
        return target if row is None or row.kind == "module" else object_name(target)

    def _tensors(self) -> list[str]:
        return [target for target in self.selection() if target in self.state.objects and not self._is_model(target)]

    def selected_input(self) -> str | None:
        """The one selected tensor of the workspace."""
        tensors = self._tensors()
        return tensors[0] if len(tensors) == 1 else None
