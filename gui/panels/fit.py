"""The Fit tab: will a model fit a card, at which batch, and how fast would it be? Main thread; reads the state.

One plan asks about every card. What would help is asked for one card at a time, and shown beside the table it belongs to.
"""

from __future__ import annotations

from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QSplitter

from devexplorer.core.benchmark.spec import parse_count
from devexplorer.core.dtypes import parse_dtype
from devexplorer.core.jobs import Done
from devexplorer.core.records.planner import Fit, FitReport, FitSpec, Help, PlanFit
from devexplorer.core.state import State
from devexplorer.core.virtual.profiles import load_profiles, parse_virtual
from devexplorer.core.workspace.models.shapes import parse_input_shapes
from devexplorer.core.workspace.models.source import parse
from devexplorer.gui.item_models.fit_rows import BATCH, CARD, COLUMNS, FITS, MEMORY, RATE, STEP, TOTAL, fit_rows
from devexplorer.gui.item_models.rows import RowsModel
from devexplorer.gui.panels.bench_fields import Choice, Findings, MenuEdit, edit
from devexplorer.gui.panels.bench_table import RunsTable
from devexplorer.gui.panels.experiment_page import ExperimentPage
from devexplorer.gui.panels.fit_bars import BarDelegate
from devexplorer.gui.panels.fit_details import FitDetails
from devexplorer.gui.plain import tip
from devexplorer.gui.theme import Theme

OPTIMIZERS = (("sgd", "SGD"), ("momentum", "SGD with momentum"), ("adam", "Adam"), ("adamw", "AdamW"))
DTYPES = ("float32", "bfloat16", "float16")
SOURCES = ("gpt2", "bert", "llama", "vit")
"""Models of transformers that the menu offers; any other can be typed."""
CHECKPOINTING = "Compute the activations of repeated blocks again in backward instead of keeping them."
_WIDTHS = {CARD: 190, MEMORY: 150, TOTAL: 84, FITS: 108, BATCH: 96, STEP: 108, RATE: 132}


class FitPanel(ExperimentPage):
    """Reads `state.fit`; `set_selection` says which model is meant until somebody types another one."""

    kind, title, action = PlanFit, "Will it fit?", "Plan"
    meaning = "Memory, largest batch and time of a step on every card, without having any of them"
    nothing = (
        "Choose a model and what shall be done with it: its real graph is run once without values, and every card is asked whether that "
        "fits, up to which batch, and how long a step would take. All of it is simulated."
    )

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__(state, theme)
        self._typed = False
        self._report: FitReport | None = None
        """The one that the table shows."""
        self._helps: dict[str, tuple[Help, ...]] = {}
        """What would help, by card; of the table's plan."""
        library = [(f"transformers:{name}", f"transformers:{name}") for name in SOURCES]
        self.model_edit = MenuEdit("", "model", library, 178, "lenet, transformers:gpt2")
        self.model_edit.setToolTip("A model of the workspace, a sample model, or transformers:TYPE?option=value")
        self.model_edit.textEdited.connect(self._on_typed)
        self.batch_edit = edit("8", "8", "Batch", 52)
        self.dtype = Choice("dtype", [(None, "own dtype", "As the model is"), *((one, one, "") for one in DTYPES)])
        self.autocast = Choice("autocast", [(None, "no autocast", ""), *((f"{one}", f"autocast {one}", "") for one in DTYPES[1:])])
        self.train = QCheckBox("Train")
        self.train.setToolTip("Forward, backward and a step of the optimizer; otherwise a forward without gradients")
        self.train.setChecked(True)
        self.optimizer = Choice("Optimizer", [(kind, words, "") for kind, words in OPTIMIZERS])
        self.optimizer.choose("adamw")
        self.checkpointing = QCheckBox("Checkpointing")
        self.cards_edit = MenuEdit("", "cards", [("every card", ""), *((name, name) for name in load_profiles())], 128, "every card")
        self.cards_edit.setToolTip("Empty: every card there is a profile of; or for example 2x Tesla T4, over which the model is split")
        self.inputs_edit = edit("", "a guess", "Input shapes", 96)
        self.inputs_edit.setToolTip("What forward gets, as in 4x12 or 8x16:int64, several with commas; the first dimension is the batch")
        for words, field in (
            ("", self.model_edit),
            ("batch", self.batch_edit),
            ("", self.dtype),
            ("", self.autocast),
            ("", self.train),
            ("", self.optimizer),
            ("", self.checkpointing),
            ("on", self.cards_edit),
            ("input", self.inputs_edit),
        ):
            self.add_field(words, field)
        for box in (self.train, self.checkpointing):
            box.toggled.connect(lambda _on: self.check())
        self.rows_model = RowsModel(COLUMNS)
        widths = [_WIDTHS.get(column, 78) for column in range(len(COLUMNS))]
        self.table = RunsTable(self.rows_model, "Cards", widths, MEMORY)
        self.rows_model.setParent(self.table)
        self.bars = BarDelegate(self.rows_model, self._fit_of, theme, self.table)
        self.table.setItemDelegateForColumn(MEMORY, self.bars)
        self.table.selectionModel().selectionChanged.connect(lambda *_rows: self._show_card())
        self.details = FitDetails(theme)
        self.details.use_requested.connect(self.use)
        self.details.helps_requested.connect(self._ask_helps)
        split = QSplitter(Qt.Orientation.Horizontal)
        split.setHandleWidth(8)
        split.setChildrenCollapsible(False)
        split.addWidget(self.table)
        split.addWidget(self.details)
        split.setStretchFactor(0, 3)
        split.setStretchFactor(1, 1)
        split.setSizes([860, 320])
        self._beside.addWidget(self.answer)  # only where a plan failed: otherwise the table says it
        self._beside.addWidget(split, 1)
        self.set_theme(theme)

    # --- the form

    def command(self) -> PlanFit:
        """See `ExperimentPage`."""
        found = Findings()
        text = self.model_edit.text().strip()
        target = text if text in self._models() else ""
        if not text:
            found.add("choose a model")
        elif not target and ":" in text:
            source = found.read(lambda: parse(text))
            if source is not None and source.own_code:
                found.add("code of your own runs only after you were asked: open the model first, then choose it here by its name")
        batch = found.read(lambda: parse_count(self.batch_edit.text(), "batch"))
        cards = self.cards_edit.text().strip()
        if cards:
            found.read(lambda: parse_virtual(cards))
        inputs = self.inputs_edit.text().strip()
        if inputs:
            found.read(lambda: parse_input_shapes(inputs))
        if self.dtype.value is not None and self.autocast.value is not None and parse_dtype(self.dtype.value) != "float32":
            found.add("autocast is for models in float32; choose one of the two")
        found.refuse()
        assert batch is not None
        spec = FitSpec(
            source="" if target else text,
            gpus=(cards,) if cards else (),
            batch=batch,
            dtype=self.dtype.value,
            autocast=self.autocast.value,
            train=self.train.isChecked(),
            optimizer=self.optimizer.value,
            checkpointing=self.checkpointing.isChecked() and self.train.isChecked(),
            inputs=inputs,
            options=bool(cards),
        )
        return PlanFit(spec=spec, target=target)

    def check(self) -> None:
        """See `ExperimentPage`."""
        training = self.train.isChecked()
        for field, meaning in ((self.optimizer, ""), (self.checkpointing, CHECKPOINTING)):
            field.setEnabled(training)
            field.setToolTip(tip(meaning) if training else "This is about training.")
        super().check()
        self.details.helps_button.setEnabled(self._why_not() is None and self.running is None)

    def use(self, found: Help) -> None:
        """Set the form to what would help, and plan again."""
        match found.key:
            case "bfloat16":
                self.dtype.choose("bfloat16")
                self.autocast.choose(None)
            case "autocast":
                self.autocast.choose("bfloat16")
            case "checkpointing":
                self.checkpointing.setChecked(True)
            case "sgd":
                self.optimizer.choose("sgd")
            case "half-batch":
                self.batch_edit.setText(str(max(1, int(self.batch_edit.text()) // 2)))
            case "two-cards":
                self.cards_edit.setText(f"2x {found.gpu}")
        self.run()

    def _on_typed(self) -> None:
        self._typed = True

    def _models(self) -> list[str]:
        return [name for name, snapshot in self._state.objects.items() if snapshot.kind == "model"]

    # --- what the window calls

    def set_theme(self, theme: Theme) -> None:
        """See `ExperimentPage`."""
        self.bars.theme = theme
        for field in (self.model_edit, self.cards_edit):
            field.set_theme(theme)
        self.details.set_theme(theme)
        super().set_theme(theme)

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """Follow the tree, until somebody types."""
        name = next((target.partition(":")[0] for target in targets), None)
        if name in self._models() and (not self._typed or not self.model_edit.text().strip()):
            self._typed = False
            self.model_edit.setText(name or "")
            self.model_edit.setCursorPosition(0)
        super().set_selection(targets)

    # --- what is shown

    def show_result(self, done: Done) -> None:
        """See `ExperimentPage`."""
        failed = done.answer is not None and done.answer.failed
        self.answer.setVisible(failed)
        report = self._state.fit
        if report is None:
            return
        if self._report is None or not _belongs(report, self._report):
            self._report, self._helps = report, {}
        if report.helps or (report.spec.options and report.spec.gpus):
            self._helps[report.spec.gpus[0]] = report.helps
        self.rows_model.set_rows(fit_rows(self._report.fits, self._theme))
        self.table.viewport().update()
        if self.table.selected_key is None and self._report.fits:
            self.table.selectRow(0)
        self._show_card()

    def _fit_of(self, key: object) -> Fit | None:
        return next((fit for fit in self._report.fits if fit.gpu == key), None) if self._report is not None else None

    def _show_card(self) -> None:
        fit = self._fit_of(self.table.selected_key)
        if fit is not None and self._report is not None:
            self.details.show_fit(fit, self._report, self._helps.get(fit.gpu))

    def _ask_helps(self) -> None:
        """The plan of the table, for the chosen card, with what would help."""
        fit = self._fit_of(self.table.selected_key)
        if fit is None or self._report is None:
            return
        self.command_requested.emit(PlanFit(spec=replace(self._report.spec, gpus=(fit.gpu,), options=True)))


def _belongs(report: FitReport, table: FitReport) -> bool:
    """Whether a report is about one card of the plan that the table shows."""
    if report is table:
        return True
    same = replace(report.spec, gpus=(), options=False) == replace(table.spec, gpus=(), options=False)
    return same and len(report.spec.gpus) == 1 and report.spec.gpus[0] in {fit.gpu for fit in table.fits}
