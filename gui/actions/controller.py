"""What the user can do, as methods: each checks what the window can know, and sends one command to the engine. Main
thread, no widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from devexplorer.core.base import object_name
from devexplorer.core.records import (
    AddVirtual,
    Backward,
    BenchSpec,
    BuildModel,
    Cancel,
    Combine,
    Command,
    Forward,
    Move,
    OpenSnapshot,
    RecordAllocator,
    Redo,
    ReleaseCache,
    Remove,
    Row,
    RunModelCode,
    SaveSnapshot,
    SentFrom,
    SetThreads,
    StartBenchmark,
    StopBenchmark,
    Undo,
)
from devexplorer.core.session import State
from devexplorer.gui.actions.dragging import movable, row_of
from devexplorer.gui.widgets import why_not_live

TWO_T4 = "2x Tesla T4"
"""What "add two virtual GPUs" adds: the pair of cards of the tutorial."""


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
        self.run_code: Callable[[RunModelCode], object] = send
        """What asks before the user's code runs again; the window sets it."""

    # --- why something cannot be done now (None: it can) --------------------------------------------------------------

    def why_no_engine(self) -> str | None:
        """Reason while the engine cannot take commands."""
        return why_not_live(self.state)

    def why_no_selection(self) -> str | None:
        """Reason when an object is needed and none is selected."""
        return self.why_no_engine() or (None if self.selection() else "Select an object in the list first.")

    def why_no_move(self) -> str | None:
        """Reason why the selection cannot move anywhere."""
        alone = len(self.state.usable_devices) < 2
        return self.why_no_selection() or (
            "There is only one device here, the CPU: add virtual GPUs to move things between devices."
            if alone
            else None
        )

    def why_no_model(self) -> str | None:
        """Reason when one model, or a part of one, is needed."""
        return self.why_no_selection() or (
            None if sum(map(self._is_model, self.selection())) == 1 else "Select one model, or one part of a model."
        )

    def why_no_element(self) -> str | None:
        """Reason when one tensor with values is needed."""
        return self.why_no_selection() or (
            None if self.element_target() is not None else "Select one tensor, parameter or buffer with values."
        )

    def row(self, target: str) -> Row | None:
        """The row of a target, where it is there."""
        return row_of(self.state, target)

    def element_target(self) -> tuple[str, tuple[int, ...]] | None:
        """The selected tensor, parameter or buffer and its shape, where exactly one with values is selected."""
        targets = self.selection()
        if len(targets) != 1:
            return None
        row = self.row(targets[0])
        if row is None or row.kind == "module" or not row.initialised or row.shape is None:
            return None
        return targets[0], row.shape

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
        """Send any command to the engine; one that runs the user's code again after a question, as needed."""
        if isinstance(command, RunModelCode):
            self.run_code(command)
        else:
            self._send(command)

    # --- what can be done
    # ----------------------------------------------------------------------------------------------

    def build(self, recipe: str, device: str = "cpu") -> None:
        """Build a sample model."""
        self._send(BuildModel(recipe=recipe, device=device))

    def move(
        self, device: str, targets: Sequence[str] | None = None, *, dtype: str | None = None, copy: bool = False
    ) -> None:
        """Move (or copy) the given targets, or the selection, to a device."""
        reason = self.why_no_engine() if targets else self.why_no_selection() if copy else self.why_no_move()
        if reason is not None:
            self._say(reason)
            return
        moved = movable(self.state, tuple(targets or self.selection()))
        if moved.words:
            self._say(moved.words)
        self._send(Move(targets=moved.targets, device=device, dtype=dtype, copy=copy))

    def cast(self, dtype: str) -> None:
        """Change the dtype of the selected objects, each where it is."""
        for target in self.selection():
            devices = self._devices(target)
            if len(devices) == 1:
                self._send(Move(targets=(target,), device=devices[0], dtype=dtype))
            else:
                self._say(f"{target} is on several devices; move it to one first, then change its dtype.")

    def undo(self) -> None:
        """Take back the newest change."""
        self._send(Undo())

    def redo(self) -> None:
        """Do again what was undone last."""
        self._send(Redo())

    def forward(self) -> None:
        """Run the selected model, on the selected tensor if there is one."""
        self._send(Forward(target=self._model(), input=self.selected_input()))

    def backward(self) -> None:
        """Forward and backward of the selected model."""
        self._send(Backward(target=self._model(), input=self.selected_input()))

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

    def set_threads(self, threads: int) -> None:
        """Set the CPU threads of one operation."""
        self._send(SetThreads(threads=threads))

    def release_cache(self, device: str) -> None:
        """Give the memory that the allocator keeps back to the device."""
        self._send(ReleaseCache(device=device))

    def record_allocator(self, on: bool) -> None:
        """Let the allocators record where blocks come from, or stop that."""
        self._send(RecordAllocator(on=on))

    def save_snapshot(self, device: str, path: str) -> None:
        """Write the snapshot of a device's allocator to a file."""
        self._send(SaveSnapshot(device=device, path=path))

    def open_snapshot(
        self, device: str | None = None, path: str | None = None, sent_from: SentFrom | None = None
    ) -> None:
        """Read the snapshot of a device's allocator, or of a file."""
        self._send(OpenSnapshot(device=device, path=path, sent_from=sent_from))

    def benchmark(self, specs: Sequence[BenchSpec]) -> None:
        """Start one run per specification."""
        for spec in specs:
            self._send(StartBenchmark(spec=spec))

    def stop_benchmark(self, run: int | None = None) -> None:
        """Stop one run, or all."""
        self._send(StopBenchmark(run=run))

    def cancel(self, job: int) -> None:
        """Cancel a job; a benchmark is stopped, and what it measured is kept."""
        is_run = any(run.run == job for run in self.state.active_runs)
        self._send(StopBenchmark(run=job) if is_run else Cancel(job=job))

    # --- reading the selection
    # -----------------------------------------------------------------------------------------

    def _is_model(self, target: str) -> bool:
        snapshot = self.state.objects.get(object_name(target))
        return snapshot is not None and snapshot.kind == "model"

    def _model(self) -> str:
        return next(target for target in self.selection() if self._is_model(target))

    def _tensors(self) -> list[str]:
        return [target for target in self.selection() if target in self.state.objects and not self._is_model(target)]

    def selected_input(self) -> str | None:
        """The one selected tensor of the workspace."""
        tensors = self._tensors()
        return tensors[0] if len(tensors) == 1 else None

    def _devices(self, target: str) -> tuple[str, ...]:
        row = self.row(target)
        return () if row is None else row.devices
