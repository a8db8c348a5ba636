"""The Fit tab: will a model fit a card, at which batch, and how fast would it be? Main thread; reads the state.

One plan asks about every card. What would help is asked for one card at a time, and shown beside the table it belongs
to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy

from devexplorer.core.base import OPTIMIZERS, Findings, object_name, parse_input_shapes
from devexplorer.core.devices.profiles import load_profiles, name_words, parse_virtual
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.records import Fit, FitReport, FitSpec, Help, PlanFit
from devexplorer.core.session import Done, State
from devexplorer.gui.fit.bars import BarDelegate, CardsTable
from devexplorer.gui.fit.details import FitDetails
from devexplorer.gui.fit.options import TRAINING_ONLY, StepOptions
from devexplorer.gui.fit.rows import COLUMNS, MEMORY, caption, columns, fit_rows
from devexplorer.gui.fit.serving import ServingForm
from devexplorer.gui.fit.views import FitViews
from devexplorer.gui.objects.command_page import ExperimentPage
from devexplorer.gui.widgets import (
    EDGE_PX,
    ElidedLabel,
    Role,
    check_box,
    hbox,
    line_edit,
    splitter,
    why_not_live,
)
from devexplorer.gui.widgets.form_fields import Choice, MenuEdit
from devexplorer.gui.widgets.table import RowsModel

PATIENCE_S = 60.0
"""In a window, with progress and Stop, a plan may take longer than on the command line."""
DTYPES = ("float32", "bfloat16", "float16")
PRECISIONS = (
    ((None, None), "model's dtype", "As the model is"),
    *(((one, None), one, f"Parameters and inputs in {one}") for one in DTYPES),
    *(
        ((None, one), f"autocast {one}", f"Products are computed in {one}, parameters stay in float32")
        for one in DTYPES[1:]
    ),
)
"""Parameters in another dtype, or products only: never both."""
SOURCES = ("gpt2", "bert", "llama", "vit")
"""Models of transformers that the menu offers; any other can be typed."""
AT_WORK = "Planning: the model is traced without data in a separate process."
_CAPTION_PX, _FAILURE_PX = 22, 56
_SHARES = [816, 440]
_STRETCH = (1, 3)
"""Table and details of what more there is: the numbers keep their width, the bar and the helps grow."""


class FitPanel(ExperimentPage):
    """Reads `state.fit`; `set_selection` says which model is meant until the user types another one."""

    kind, title, action = PlanFit, "Will it fit?", "Plan"
    meaning = "Memory, largest batch and time of a step on every card, without having any of them"
    nothing = (
        "Choose a model and a workload. The model is traced once without data, then checked against every card: whether"
        " it fits, the largest batch, and the time of a step. All figures are simulated."
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._typed = False
        self._report: FitReport | None = None
        """The one that the table shows."""
        self._name = ""
        """Of the model that it is about."""
        self._drawn: FitReport | None = None
        self._helps: dict[str, FitReport] = {}
        """What would help, by card; of the table's plan."""
        self._curves: dict[str, FitReport] = {}
        """Time and memory over the batch, by card; of the table's plan."""
        self._models: list[str] = []
        """Those of the workspace that the menu offers."""
        self.model_edit = MenuEdit("", "model", _library(), 172, "lenet, transformers:gpt2")
        self.model_edit.setToolTip("A model of the workspace, a sample model, or transformers:TYPE?option=value")
        self.model_edit.textEdited.connect(self._on_typed)
        self.batch_edit = line_edit("8", "8", "Batch", 52)
        self.precision = Choice("dtype and autocast", PRECISIONS)
        self.train = check_box(
            "Train", tip="Forward, backward and a step of the optimizer; otherwise a forward without gradients"
        )
        self.train.setChecked(True)
        self.optimizer = Choice("Optimizer", [(kind, known.title, "") for kind, known in OPTIMIZERS.items()])
        self.optimizer.choose("adamw")
        self.options = StepOptions()
        self.options.changed.connect(self.check)
        self._known = load_profiles()
        self._profiles = {name: name_words(name) for name in self._known}
        self._devices: list[str] = []
        self._own: list[str] = []
        """Profiles of the devices that are here: the menu and the table begin with them."""
        self.cards_edit = MenuEdit("", "cards", _cards(self._profiles), 128, "every card")
        self.cards_edit.setToolTip(
            "Empty: every card there is a profile of; or for example 2x Tesla T4, over which the model is split"
        )
        self.inputs_edit = line_edit(
            "",
            "automatic",
            "Input shapes",
            124,
            tip="What forward gets, as in 4x12 or 8x16:int64, several with commas; the first dimension is the batch",
        )
        self.add_fields(
            ("", self.model_edit),
            ("batch", self.batch_edit),
            ("", self.precision),
            ("", self.train),
            ("", self.optimizer),
            ("", self.options.button),
        )
        self.serving = ServingForm(self)
        self.add_field("on", self.cards_edit)
        inputs = self.add_field("input", self.inputs_edit)
        self._not_served = (self.train, self.optimizer, self.options.button, inputs)
        """Fields that mean nothing where text is generated."""
        self.rows_model = RowsModel(COLUMNS)
        self.table = CardsTable(self.rows_model)
        self.rows_model.setParent(self.table)
        self.bars = BarDelegate(self.rows_model, self._fit_of)
        self.table.setItemDelegateForColumn(MEMORY, self.bars)
        self.table.selectionModel().selectionChanged.connect(lambda *_rows: self._show_card())
        self.table.activated.connect(lambda _index: self._ask_helps())
        self.details = FitDetails()
        self.details.use_requested.connect(self.use)
        self.details.helps_requested.connect(self._ask_helps)
        self.views.insert_details(self.details)
        self.views.curve_requested.connect(self._ask_curve)
        self.views.step_chosen.connect(self._plan_published)
        self.views.view_changed.connect(self.refresh)
        self._beside.addWidget(splitter(self.table, self.views, sizes=_SHARES, stretches=_STRETCH))
        self.refresh()

    def _place_hint(self, form: QHBoxLayout) -> None:
        """Below the form, whose fields need the whole width: the same line says what the table is about."""
        form.addStretch(1)
        self.caption = ElidedLabel(Role.LABEL, "soft")
        self.views = FitViews()
        for item in (self.caption, self.hint, self.views.tabs):
            item.setFixedHeight(_CAPTION_PX)
        line = hbox((self.caption, 1), (self.hint, 1), self.views.tabs, margins=(EDGE_PX, 0, EDGE_PX, 0))
        self._column.insertLayout(1, line)
        self._column.insertWidget(2, self.answer)  # only where a plan failed: otherwise the table says it
        self.answer.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.answer.setFixedHeight(_FAILURE_PX)
        self.answer.hide()

    # --- the form

    def command(self) -> PlanFit:
        """See `ExperimentPage`."""
        findings = Findings()
        text = self.model_edit.text().strip()
        target = text if text in self._state.models else ""
        if not text:
            findings.add("choose a model")
        elif not target and ":" not in text and self._recipes and text.partition("?")[0] not in self._recipes:
            findings.add(
                f"there is no model '{text}'; choose one of the workspace, a sample model or transformers:TYPE"
            )
        elif not target and ":" in text:
            source = findings.checked(lambda: parse(text))
            if source is not None and source.own_code:
                findings.add(
                    "your own code runs only after you allow it: open the model first, then choose it here by its name"
                )
        batch = findings.count(self.batch_edit.text(), "batch")
        cards = self.cards_edit.text().strip()
        if cards:
            findings.checked(lambda: parse_virtual(cards))
        inputs = "" if self.serving.is_on else self.inputs_edit.text().strip()
        if inputs:
            findings.checked(lambda: parse_input_shapes(inputs))
        dtype, autocast = self.precision.value
        serving = self.serving.spec(findings, autocast)
        findings.demand_none()
        assert batch is not None
        train = self.train.isChecked() and serving is None
        spec = FitSpec(
            source="" if target else text,
            gpus=(cards,) if cards else (),
            batch=batch,
            dtype=dtype,
            autocast=autocast,
            train=train,
            optimizer=self.optimizer.value,
            checkpointing=self.options.checkpointing.isChecked() and train,
            tf32=self.options.tf32.isChecked(),
            channels_last=self.options.channels_last.isChecked(),
            inputs=inputs,
            options=bool(cards) and serving is None,
            serving=serving,
            patience_seconds=PATIENCE_S,
        )
        return PlanFit(spec=spec, target=target)

    def check(self) -> None:
        """See `ExperimentPage`."""
        training = self.train.isChecked()
        self.optimizer.setEnabled(training)
        self.optimizer.setToolTip("" if training else TRAINING_ONLY)
        self.options.set_training(training)
        self.serving.show_fields(self._not_served)
        if self.running is not None and self.start_button.hasFocus() and self.table.isVisible():
            self.table.setFocus()  # the answer will be there
        super().check()
        self.hint.setVisible(bool(self.hint.full_text))
        self.caption.setVisible(bool(self.caption.full_text) and self.running is None)
        self.empty.sentence.setText(self.nothing if self.running is None else AT_WORK)
        ready = why_not_live(self._state) is None and self.running is None
        self.details.helps.set_ready(ready)
        self.views.set_ready(ready)

    def use(self, found: Help) -> None:
        """Set the form to the plan of the table with what would help, and plan again."""
        if self._report is None:
            return
        spec = self._report.spec
        match found.key:
            case "bfloat16":
                spec = replace(spec, dtype="bfloat16", autocast=None)
            case "autocast":
                spec = replace(spec, dtype=None, autocast="bfloat16")
            case "checkpointing":
                spec = replace(spec, checkpointing=True)
            case "sgd":
                spec = replace(spec, optimizer="sgd")
            case "half-batch":
                spec = replace(spec, batch=max(1, spec.batch // 2))
            case "two-cards":
                spec = replace(spec, gpus=(f"2x {found.gpu}",))
        self._fill_in(spec, self._name if self._name in self._state.models else spec.source)
        self.start()

    def _fill_in(self, spec: FitSpec, model: str) -> None:
        """Set the form to this."""
        self._typed = True
        texts = (
            (self.model_edit, model),
            (self.batch_edit, str(spec.batch)),
            (self.cards_edit, ", ".join(spec.gpus)),
            (self.inputs_edit, spec.inputs),
        )
        for field, text in texts:
            field.setText(text)
            field.setCursorPosition(0)
        self.precision.choose((spec.dtype, spec.autocast))
        self.train.setChecked(spec.train)
        self.optimizer.choose(spec.optimizer)
        self.options.choose(checkpointing=spec.checkpointing, tf32=spec.tf32, channels_last=spec.channels_last)
        self.serving.fill(spec.serving)

    def _on_typed(self) -> None:
        self._typed = True

    @property
    def _recipes(self) -> Collection[str]:
        return self._state.engine.recipes if self._state.engine is not None else ()

    def _follow_models(self) -> None:
        """Offer the models there are. One that was removed leaves the field too, unless what was typed still says a
        model: a sample model of the same name."""
        before, now = self._models, self._state.models
        if now == before or why_not_live(self._state) is not None:
            return
        self._models = now
        self.model_edit.offer([*((name, name) for name in now), *_library()])
        text = self.model_edit.text().strip()
        if text in before and text not in now and not (self._typed and text in self._recipes):
            self._typed = False
            self.model_edit.fill(now[0] if len(now) == 1 else "")

    def _follow_devices(self) -> None:
        devices = [device.info.name for device in self._state.devices.values()]
        if devices != self._devices:
            self._devices, here = devices, set(map(name_words, devices))
            self._own = [name for name, words in self._profiles.items() if words in here]
            self.cards_edit.offer(_cards(sorted(self._profiles, key=lambda name: name not in self._own)))

    # --- what the window calls

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """Follow the tree, until the user types."""
        name = next(map(object_name, targets), None)
        if name in self._state.models and (not self._typed or not self.model_edit.text().strip()):
            self._typed = False
            self.model_edit.fill(name or "")
        super().set_selection(targets)

    # --- what is shown

    def refresh(self) -> None:
        """See `ExperimentPage`. What is there stays, also when its command is long past; a recording has none of it."""
        self._follow_models()
        self._follow_devices()
        report, done = self._state.fit, self.latest
        if report is None and self._report is not None:
            self._report, self._helps, self._curves, self._drawn = None, {}, {}, None
            self.rows_model.set_rows([])
            self.caption.set_full_text("")
        self.answer.setVisible(done is not None and done.failed and self.running is None)
        super().refresh()
        self.table.setHidden(report is None and self.views.needs_no_plan)
        self._results.setCurrentWidget(self.empty if report is None and not self.views.needs_no_plan else self._shown)

    @property
    def latest(self) -> Done | None:
        """See `ExperimentPage`; a stopped plan changes nothing."""
        plans = (item for item in reversed(self._state.done) if isinstance(item.command, PlanFit))
        return next((item for item in plans if item.answer is not None and not item.cancelled), None)

    def show_result(self, done: Done) -> None:
        """See `ExperimentPage`."""
        report = self._state.fit
        if report is None:
            return
        if self._report is None or not _belongs(report, self._report):
            self._report, self._helps, self._curves = report, {}, {}
            target = done.command.target if isinstance(done.command, PlanFit) and not done.failed else ""
            self._name = target or report.spec.source
        if report.spec.curve:
            self._curves[report.spec.gpus[0]] = report
        asked = report.spec.gpus[0] if report.helps or (report.spec.options and report.spec.gpus) else ""
        new = asked and self._helps.get(asked) is not report
        if asked:
            self._helps[asked] = report
        if self._drawn is not self._report:  # this is called at every event
            if self._drawn is None or columns(self._report) != columns(self._drawn):
                self.rows_model.set_columns(columns(self._report))
            self._drawn = self._report
            fits = sorted(self._report.fits, key=lambda fit: fit.gpu not in self._own)
            self.rows_model.set_rows(fit_rows(fits))
            self.views.show_report(fits, self._report)
            self.caption.set_full_text(caption(self._report, self._name.partition("?")[0]))
            self.table.viewport().update()
        if new:
            self.table.select_key(asked)
        if self.table.selected_key is None and self._report.fits:
            self.table.selectRow(0)
        self._show_card()

    def _fit_of(self, key: object) -> Fit | None:
        return next((fit for fit in self._report.fits if fit.gpu == key), None) if self._report is not None else None

    def _show_card(self) -> None:
        fit = self._fit_of(self.table.selected_key)
        if fit is not None and self._report is not None:
            self.details.show_fit(fit, self._report, self._helps.get(fit.gpu))
            kinds = {card.gpu for card in fit.cards}
            profile = self._known.get(min(kinds)) if len(kinds) == 1 else None
            self.views.show_card(fit, self._report, self._curves.get(fit.gpu), profile)

    def _ask_helps(self) -> None:
        """The plan of the table, for the chosen card, with what would help; once."""
        fit = self._fit_of(self.table.selected_key)
        if fit is not None and fit.gpu not in self._helps and fit.serving is None:
            self._ask_again(fit.gpu, options=True)

    def _ask_curve(self) -> None:
        """The same, with its curve over the batch."""
        fit = self._fit_of(self.table.selected_key)
        if fit is not None and fit.gpu not in self._curves:
            self._ask_again(fit.gpu, curve=True)

    def _ask_again(self, gpu: str, *, options: bool = False, curve: bool = False) -> None:
        if self._report is None or why_not_live(self._state) is not None or self.running is not None:
            return
        spec = replace(self._report.spec, gpus=(gpu,), options=options, curve=curve)
        self.command_requested.emit(PlanFit(spec=spec, target=self._name if self._name in self._state.models else ""))

    def _plan_published(self, spec: FitSpec) -> None:
        """Set the form to a published step, and plan it without looking for what would help."""
        if why_not_live(self._state) is None and self.running is None:
            self._fill_in(spec, spec.source)
            self.command_requested.emit(PlanFit(spec=replace(spec, patience_seconds=PATIENCE_S)))


def _cards(names: Iterable[str]) -> list[tuple[str, str]]:
    return [("every card", ""), *((name, name) for name in names)]


def _library() -> list[tuple[str, str]]:
    return [(f"transformers:{name}", f"transformers:{name}") for name in SOURCES]


def _belongs(report: FitReport, table: FitReport) -> bool:
    """Whether a report is about one card of the plan that the table shows."""
    if report is table:
        return True
    spec, other = (replace(item.spec, gpus=(), options=False, curve=False) for item in (report, table))
    return spec == other and len(report.spec.gpus) == 1 and report.spec.gpus[0] in {fit.gpu for fit in table.fits}
