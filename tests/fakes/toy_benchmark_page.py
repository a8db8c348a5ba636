"""The page of the toy benchmark in the window."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QLabel

from devexplorer.core.session.journal import Run
from devexplorer.gui.benchmark.base_page import BenchPage
from fakes.toy_benchmark import ToySpec


class ToyPage(BenchPage[ToySpec]):  # type: ignore[type-var]
    kind = "toy"
    nothing = "Nothing was counted in this session."

    def build(self) -> None:
        self.add_field("on", self.devices)
        self.answer = QLabel()
        self.set_results(self.answer)

    def specs(self) -> tuple[ToySpec, ...]:
        return tuple(ToySpec(device=name) for name in self.devices.chosen)

    def describe(self, specs: Sequence[ToySpec]) -> str:
        return "counts to three"

    def offer(self, specs: Sequence[ToySpec]) -> str:
        return "Count"

    def show_runs(self, runs: list[Run]) -> None:
        result = runs[0].result
        self.answer.setText(f"{result.iterations} rounds" if result is not None else "counting")
