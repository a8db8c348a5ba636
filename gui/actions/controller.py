"""What the user can do, as methods: each checks what the window can know, and sends one command to the engine. Main
thread, no widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from devexplorer.core.base import object_name
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
        self.asks: dict[type[BaseCommand], Callable[[Any, Callable[[Any], object]], object]] = {}
        """What features ask before commands of theirs are sent: given the command, and what sends it."""

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

    def row(self, target: str) -> Row | None:
        """The row of a target, where it is there."""
        return row_of(self.state, target)

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
            reason = self.why_no_engine()
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

    def _tensors(self) -> list[str]:
        return [target for target in self.selection() if target in self.state.objects and not self._is_model(target)]

    def selected_input(self) -> str | None:
        """The one selected tensor of the workspace."""
        tensors = self._tensors()
        return tensors[0] if len(tensors) == 1 else None
