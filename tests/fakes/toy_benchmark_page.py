"""The page of the toy benchmark in the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtWidgets import QLabel

from devexplorer.core.records.benchmark import BenchSpec
from devexplorer.core.session.jobs import Run
from devexplorer.core.session.state import State
from devexplorer.gui.benchmark.base_page import BenchPage
from devexplorer.gui.widgets.device_choice import DeviceChoice
from devexplorer.gui.widgets.theme import Theme
from fakes.toy_benchmark import ToySpec


class ToyPage(BenchPage):
    kind, title = "toy", "Toy"
    nothing = "Nothing was counted in this session."

    def __init__(self, state: State, theme: Theme, clock: Callable[[], float]) -> None:
        super().__init__(state, theme, clock)
        self.devices = DeviceChoice(state)
        self.add_field("on", self.devices)
        self.answer = QLabel()
        self.set_results(self.answer)
        self.check()

    def specs(self) -> tuple[BenchSpec, ...]:
        return tuple(ToySpec(device=name) for name in self.devices.chosen)  # type: ignore[misc]

    def describe(self, specs: Sequence[BenchSpec]) -> str:
        return "counts to three"

    def offer(self, specs: Sequence[BenchSpec]) -> str:
        return "Count"

    def show_runs(self, runs: list[Run]) -> None:
        result = runs[0].result
        self.answer.setText(f"{result.iterations} rounds" if result is not None else "counting")
