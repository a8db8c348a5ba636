"""The Model page of the Benchmark tab: steps of a model of the workspace or of a sample model, and a table of the runs.
Main thread."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox

from devexplorer.core.base import MISSING, BadInput, bytes_text, flops_cell_text, number_text
from devexplorer.core.model_steps.kind import ModelResult, ModelSpec, step_text
from devexplorer.core.records import Spread
from devexplorer.core.session import Run
from devexplorer.gui.benchmark.base_page import TablePage, device_cell, seconds_cell, state_cell
from devexplorer.gui.widgets import Cell, Choice, Column, TableRow, check_box, line_edit, numbers

MODEL_COLUMNS = (
    Column("model"),
    Column("device"),
    Column("step", "What one step does, how many samples it takes, and with what"),
    numbers("samples/s", "The median over the steps; while it runs, that of the latest block"),
    numbers("p20", "Samples per second that 20 % of the steps stayed below"),
    numbers("p80", "Samples per second that 80 % of the steps stayed below"),
    numbers("ms per step", "Median"),
    numbers("FLOP/s", "Floating-point operations as torch.utils.flop_counter counts them, over the median step"),
    numbers("peak MiB", "The most that was allocated on the device during the steps"),
    numbers("steps"),
    numbers("seconds", "Measured time on the device's own clock, warm-up left out"),
    Column("state"),
)

UNKNOWN_PEAK = "the memory of this device is not tracked"
UNCOUNTED = "torch.utils.flop_counter cannot count this model"
STEPS = (
    ("", "forward", "The model runs; nothing is learnt"),
    ("sgd", "train, sgd", "Forward, backward, and one step of SGD"),
    ("adam", "train, adam", "Forward, backward, and one step of Adam, which keeps two more tensors per parameter"),
    ("adamw", "train, adamw", "Forward, backward, and one step of AdamW"),
)
AUTOCAST = (
    (None, "no autocast", "Each operation in the dtype of its operands"),
    ("float16", "autocast float16", "torch.autocast: products in float16, what needs range in float32"),
    ("bfloat16", "autocast bfloat16", "torch.autocast: products in bfloat16, what needs precision in float32"),
)
COLUMN_PX = [104, 142, 200, 78, 60, 60, 88, 66, 80, 54, 66, 116]
"""Together no more than Measure has in a window of 1366 pixels."""
P20, P80, STEP_MS, TFLOPS, STEPS_TAKEN, TAKEN, STATE = 4, 5, 6, 7, 9, 10, 11


class ModelPage(TablePage[ModelSpec]):
    """One specification per chosen device."""

    kind = "model"
    nothing = "No model has been measured in this session."
    table_name, columns, widths_px, stretched = "Runs of models in this session", MODEL_COLUMNS, COLUMN_PX, STATE
    gives_up = (STEPS_TAKEN, TAKEN, STEP_MS, TFLOPS, P20, P80)

    def build(self) -> None:
        self.target = QComboBox(insertPolicy=QComboBox.InsertPolicy.NoInsert)
        self.target.setFixedWidth(124)
        self.target.setAccessibleName("Model")
        self._typed = line_edit(placeholder="a model")
        self.target.setLineEdit(self._typed)
        self.target.setToolTip("A model of the workspace, a sample model, or package.module:factory")
        self.batch_edit = line_edit("8", "8", "Samples per step", 44)
        self.step = Choice("Step", STEPS)
        self.autocast = Choice("Autocast", AUTOCAST)
        self.compiled = check_box(
            "compile", tip="Through torch.compile, where it works; compiling is not part of the measured time"
        )
        self.seconds_edit = line_edit("5", "5", "Seconds", 44)
        self.add_fields(
            ("model", self.target),
            ("on", self.devices),
            ("batch", self.batch_edit),
            ("", self.step),
            ("", self.autocast),
            ("", self.compiled),
            ("seconds", self.seconds_edit),
        )
        self.add_table()
        self._offered: list[str] = []
        self.target.currentTextChanged.connect(self._edited)
        self._typed.returnPressed.connect(self.start)

    def refresh(self) -> None:
        """Show devices, models and runs as they are now."""
        self._offer_models()
        super().refresh()

    @property
    def _recipes(self) -> dict[str, str]:
        return dict(self._state.engine.recipes) if self._state.engine is not None else {}

    def _offer_models(self) -> None:
        """Those of the workspace first; a sample model of the same name is the same model built again, so it is not
        offered twice."""
        objects, recipes = self._state.models, self._recipes
        names = [*objects, *(name for name in recipes if name not in objects)]
        if names == self._offered:
            return
        typed = self.target.currentText()
        self._offered = names
        self.target.blockSignals(True)
        self.target.clear()
        for name in names:
            self.target.addItem(name)
            words = "in the workspace" if name in objects else recipes[name]
            self.target.setItemData(self.target.count() - 1, words, Qt.ItemDataRole.ToolTipRole)
        self.target.setCurrentText(typed or (names[0] if names else ""))
        self.target.blockSignals(False)
        self.check()

    # the form

    def specs(self) -> tuple[ModelSpec, ...]:
        """One per device. Raises one `BadInput` with everything that is wrong."""
        findings = self.checked()
        target = findings.checked(lambda: self._known_target(self.target.currentText()))
        batch = findings.count(self.batch_edit.text(), "batch")
        seconds = findings.seconds(self.seconds_edit.text().strip())
        for name in self.devices.chosen if self.compiled.isChecked() else ():
            if self._state.devices[name].info.simulated:
                findings.add(
                    f"torch.compile makes code for a chip, and behind {name} there is none; measure without it"
                )
        findings.demand_none()
        assert target is not None
        assert batch is not None
        assert seconds is not None
        optimizer = str(self.step.value)
        return tuple(
            ModelSpec(
                target=target,
                device=device,
                batch=batch,
                train=bool(optimizer),
                optimizer=optimizer or "sgd",
                autocast=self.autocast.value,
                compiled=self.compiled.isChecked(),
                seconds=seconds,
            )
            for device in self.devices.chosen
        )

    def _known_target(self, text: str) -> str:
        name = text.strip()
        if not name:
            raise BadInput("no model is named; choose one, or build one first")
        if ":" not in name and self._offered and name not in self._offered:
            some = ", ".join([*self._offered[:4], *(["…"] if len(self._offered) > 4 else [])])
            raise BadInput(f"there is no model '{name}'; there are {some}, or package.module:factory")
        return name

    def describe(self, specs: Sequence[ModelSpec]) -> str:
        """What is measured."""
        spec = specs[0]
        return f"{spec.target}, {step_text(spec)}"

    # the runs

    def row(self, run: Run) -> TableRow:
        """A running one shows its latest block."""
        assert isinstance(run.spec, ModelSpec)
        spec, result = run.spec, run.result if isinstance(run.result, ModelResult) else None
        rate: Spread | None = result.samples_per_s if result else None
        latest = run.latest if not run.ended else None
        samples_per_s: float | None = None
        tflops: float | None = None
        if result:
            samples_per_s = result.samples_per_s.median
            tflops = result.tflops.median if result.tflops else None
        elif latest:
            samples_per_s, tflops = latest.samples_per_s, latest.tflops
        peak = result.peak_memory_bytes if result else None
        peak_tip = ""
        if peak is not None:
            peak_tip = bytes_text(peak)
        elif result:
            peak_tip = UNKNOWN_PEAK
        return TableRow(
            run.run,
            (
                Cell(spec.target),
                device_cell(run, self._state),
                Cell(step_text(spec), "dim"),
                Cell(number_text(samples_per_s)),
                Cell(number_text(rate.p20 if rate else None)),
                Cell(number_text(rate.p80 if rate else None)),
                Cell(number_text(1e3 * result.step_seconds.median) if result else MISSING),
                Cell(flops_cell_text(tflops), tip=UNCOUNTED if tflops is None and result is not None else ""),
                Cell(MISSING if peak is None else f"{peak / (1 << 20):,.1f}", tip=peak_tip),
                Cell(f"{result.iterations:,}" if result else MISSING),
                seconds_cell(result.seconds if result else None),
                state_cell(run),
            ),
        )
