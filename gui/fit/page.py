"""The Fit tab: will a model fit a card, at which batch, and how fast would it be? Main thread; reads the state.

One plan asks about every card. What would help is asked for one card at a time, and shown beside the table it belongs
to.
"""

from __future__ import annotations

from msgspec.structs import replace
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy

from devexplorer.core.base import count_text
from devexplorer.core.planner.records import Fit, FitReport, FitSpec, Help, PlanFit
from devexplorer.core.planner.state import FitState
from devexplorer.core.records import Calibration
from devexplorer.core.session import FinishedCommand, State
from devexplorer.gui.fit.details import BarDelegate, CardsTable
from devexplorer.gui.fit.form import PATIENCE_S, FitForm
from devexplorer.gui.fit.rows import MEMORY, caption, columns, fit_row
from devexplorer.gui.fit.views import FitViews
from devexplorer.gui.forms.page import BUTTON_PX
from devexplorer.gui.objects.command_page import ExperimentPage
from devexplorer.gui.widgets import (
    EDGE_PX,
    UNLIMITED_PX,
    ElidedLabel,
    Role,
    hbox,
    is_only_shown,
    push_button,
    set_look,
    splitter,
    why_not_live,
)

OLD = "Outdated (the model was changed or removed since): "
AT_WORK = "Checking: the model is traced without data in a separate process."
OF_SCRIPT = (
    "Whether this script would fit other cards, predicted from what its next training step holds in memory. The"
    " prediction is shown beside the measured peak of each device."
)
SCRIPT_AT_WORK = "Checking: waiting for the script's next training step."
SCRIPT = FitSpec(source="the script", train=True)
"""The script itself knows what it does."""
OPEN, FOLD, OPEN_TIP = "Edit check", "Hide form", "Model, workload and cards of the next check"
REST, REST_TIP = "Check the other {}", "There was no time for these cards; those of the table stay"
_ABOVE_PX = 6
_LINE_MARGINS, _FOLDED_MARGINS = (EDGE_PX, 4, EDGE_PX, 2), (EDGE_PX, 2, EDGE_PX, 0)
_SHARES = [816, 440]
LOW_PX, NARROW_PX = 200, 278
"""In a lower page the table leaves its room to a picture, but for the names of the cards and whether they fit."""
_STRETCH = (1, 3)
"""Table and details of what more there is: the numbers keep their width, the bar and the helps grow."""


class FitPanel(ExperimentPage):
    """Reads `FitState`; `set_selection` says which model is meant until the user types another one."""

    kind, title, action = PlanFit, "Will it fit?", "Check fit"
    meaning = "Memory, largest batch and time of a step on every card, without having any of them"
    nothing = (
        "Choose a model and a workload. The model is traced once without data, then checked against every card: whether"
        " it fits, the largest batch, and the time of a step. All figures are simulated."
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._opened = self._failed = False
        """Whether the user wants the fields, though there is an answer; whether the latest plan failed."""
        self._report: FitReport | None = None
        """The one that the table shows."""
        self._name = ""
        """Of the model that it is about."""
        self._drawn: FitReport | None = None
        self._helps: dict[str, FitReport] = {}
        """What would help, by card; of the table's plan."""
        self._curves: dict[str, FitReport] = {}
        """Time and memory over the batch, by card; of the table's plan."""
        self.form = FitForm(self, state)
        self.table = CardsTable()
        self.bars = BarDelegate(self.table.rows_model, self._fit_of)
        self.table.setItemDelegateForColumn(MEMORY, self.bars)
        self.table.selected.connect(self._show_card)
        self.table.activated.connect(lambda _index: self._ask_helps())
        self.details = self.views.details
        self.details.helps.use_requested.connect(self.use)
        self.details.helps.helps_requested.connect(self._ask_helps)
        self.views.curves.empty.chosen.connect(self._ask_curve)
        self.views.published.step_chosen.connect(self._plan_published)
        self.views.view_changed.connect(self.refresh)
        self._parts, self._sizes = splitter(self.table, self.views, sizes=_SHARES, stretches=_STRETCH), _SHARES
        self._beside.addWidget(self._parts)
        self.refresh()

    def _place_hint(self, form: QHBoxLayout) -> None:
        """The fields have the whole width. The line below them has the button, what the table is about, and the views;
        it is all that is left of the form while that is folded."""
        form.addStretch(1)
        self.caption = ElidedLabel(Role.LABEL, "soft")
        self.views = FitViews()
        self.fold_button = push_button(OPEN, self._toggle_form, look="quiet", tip=OPEN_TIP)
        self.rest_button = push_button("", self._plan_rest, look="quiet", tip=REST_TIP)
        for item in (self.caption, self.hint, self.views.tabs, self.fold_button, self.rest_button):
            item.setFixedHeight(BUTTON_PX)
        for button in (self.start_button, self.stop_button):
            form.removeWidget(button)
            button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._line = hbox(
            self.start_button,
            self.stop_button,
            self.fold_button,
            self.rest_button,
            (self.caption, 1),
            (self.hint, 1),
            self.views.tabs,
            margins=_LINE_MARGINS,
        )
        self._line.insertStretch(self._line.indexOf(self.views.tabs), 0)  # takes room where nothing is said
        self._column.insertLayout(1, self._line)

    # --- folding

    @property
    def is_folded(self) -> bool:
        """Whether the fields have given their room to the answer."""
        return self._fields.isHidden()

    @property
    def why_not(self) -> str | None:
        """See `ExperimentPage`; a running script can be asked."""
        return None if is_only_shown(self._state) else super().why_not

    def _can_fold(self) -> bool:
        """Whether there is an answer, or a list, that has more room without them: in one line they take hardly any."""
        row, width = self._fields.row, self.width() - EDGE_PX
        lines = row.heightForWidth(width) > row.sizeHint().height()
        return lines and not self._failed and (self._report is not None or self.views.needs_no_plan)

    def _toggle_form(self) -> None:
        self._opened = self.is_folded
        self._fold()
        if self._opened:
            self.form.batch_edit.setFocus()
            self.form.batch_edit.selectAll()

    def _fold(self) -> None:
        if is_only_shown(self._state):  # there is nothing to fill in
            self._fields.hide()
            self.fold_button.hide()
            self._line.setContentsMargins(*_LINE_MARGINS)
            self.start_button.setVisible(self.running is None)
            return
        can = self._can_fold()
        folded = can and not self._opened
        if folded != self.is_folded or can == self.fold_button.isHidden():
            had_focus = self._fields.isAncestorOf(self.focusWidget()) or self.start_button.hasFocus()
            self.fold_button.setVisible(can)
            self.fold_button.setText(OPEN if folded else FOLD)
            self.fold_button.setToolTip(OPEN_TIP if folded else "")
            self._fields.setVisible(not folded)
            self._line.setContentsMargins(*(_FOLDED_MARGINS if folded else _LINE_MARGINS))
            self._form.setContentsMargins(0, 0 if folded else _ABOVE_PX, EDGE_PX, 0)
            if folded and had_focus:
                (self.table if self.table.isVisible() else self.fold_button).setFocus()
        self.start_button.setVisible(not folded and self.running is None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()
        self._share_room()

    def _share_room(self) -> None:
        """Between the table and the view."""
        narrow = self.height() < LOW_PX and self.views.is_picture
        if narrow == (self.table.maximumWidth() == NARROW_PX):
            return
        if narrow:
            self._sizes = self._parts.sizes()
        self.table.setMaximumWidth(NARROW_PX if narrow else UNLIMITED_PX)
        self.table.setMinimumWidth(NARROW_PX if narrow else 0)
        if not narrow:
            self._parts.setSizes(self._sizes)

    # --- the form

    def command(self) -> PlanFit:
        """See `ExperimentPage`."""
        return PlanFit(spec=SCRIPT) if is_only_shown(self._state) else self.form.command()

    def start(self) -> None:
        """See `ExperimentPage`; the fields fold where there is an answer."""
        if self.start_button.isEnabled():
            self._opened = False
        super().start()
        self._fold()

    def check(self) -> None:
        """See `ExperimentPage`."""
        self.form.show_fields()
        if self.running is not None and self.start_button.hasFocus() and self.table.isVisible():
            self.table.setFocus()  # the answer will be there
        super().check()
        self._fold()
        self.hint.setVisible(bool(self.hint.full_text) and not (self.is_folded and self.running is None))
        self.caption.setVisible(bool(self.caption.full_text) and self.running is None)
        at_rest, at_work = self.nothing, AT_WORK
        if is_only_shown(self._state):
            at_rest, at_work = OF_SCRIPT, SCRIPT_AT_WORK
        self.empty.sentence.setText(at_rest if self.running is None else at_work)
        ready = why_not_live(self._state) is None and self.running is None
        self.details.helps.set_ready(ready)
        self.views.set_ready(ready)
        late = self._report.late if self._report is not None and ready else ()
        self.rest_button.setVisible(bool(late))
        self.rest_button.setText(REST.format(count_text(len(late), "card")))

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
        self.form.fill_in(spec, self._name if self._name in self._state.models else spec.source)
        self.start()

    # --- what the window calls

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """Follow the tree, until the user types."""
        self.form.follow_selection(targets)
        super().set_selection(targets)

    def set_calibrations(self, calibrations: tuple[Calibration, ...]) -> None:
        """Calibrated cards that can be planned for."""
        self.form.set_calibrations(calibrations)
        self.check()

    # --- what is shown

    def refresh(self) -> None:
        """See `ExperimentPage`. What is there stays, also when its command is long past; a recording has none of it."""
        self.form.follow_state()
        report, done = self._state.part(FitState).report, self.latest
        if report is None and self._report is not None:
            self._report, self._helps, self._curves, self._drawn = None, {}, {}, None
            self.table.set_rows([])
            self.caption.set_full_text("")
        self._failed = done is not None and done.failed and self.running is None
        if done is not None and done.answer is not None and self._failed:
            self.caption.set_full_text(f"✕ {done.answer.title}: {done.answer.words}")
        set_look(self.caption, "error" if self._failed else "soft")
        super().refresh()
        self.table.setHidden(self.views.needs_no_plan)  # the list needs the width, and is about other steps
        self._share_room()
        self._results.setCurrentWidget(self.empty if report is None and not self.views.needs_no_plan else self._shown)

    @property
    def latest(self) -> FinishedCommand | None:
        """See `ExperimentPage`; a stopped plan changes nothing."""
        plans = (item for item in reversed(self._state.done) if isinstance(item.command, PlanFit))
        return next((item for item in plans if item.answer is not None and not item.cancelled), None)

    def show_result(self, done: FinishedCommand) -> None:
        """See `ExperimentPage`."""
        report = self._state.part(FitState).report
        if report is None:
            return
        if self._report is None or not _belongs(report, self._report):
            self._report, self._helps, self._curves = report, {}, {}
            target = done.command.target if isinstance(done.command, PlanFit) and not done.failed else ""
            self._name = target or report.spec.source
        known = {fit.gpu for fit in self._report.fits}
        more = tuple(fit for fit in report.fits if fit.gpu not in known)
        if more:
            self._report = replace(self._report, fits=(*self._report.fits, *more), late=report.late)
        if report.spec.curve:
            self._curves[report.spec.gpus[0]] = report
        asked = report.spec.gpus[0] if report.helps or (report.spec.options and report.spec.gpus) else ""
        new = asked and self._helps.get(asked) is not report
        if asked:
            self._helps[asked] = report
        if self._drawn is not self._report:  # this is called at every event
            if self._drawn is None or columns(self._report) != columns(self._drawn):
                self.table.rows_model.set_columns(columns(self._report))
            self._drawn = self._report
            fits = sorted(self._report.fits, key=lambda fit: fit.gpu not in self.form.own)
            self.table.set_rows([fit_row(fit) for fit in fits])
            self.views.show_report(fits, self._report)
            self.table.viewport().update()
        said = (OLD if self._state.part(FitState).is_old else "") + caption(self._report, self._name.partition("?")[0])
        if not self._failed:
            short = said.partition(" (simulated)")[0].removeprefix(f"{self._name.partition('?')[0]} ")
            self.caption.set_full_text(said, brief=short[:1].upper() + short[1:])
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
            profile = self.form.profiles.get(min(kinds)) if len(kinds) == 1 else None
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

    def _plan_rest(self) -> None:
        if self._report is not None:
            self._ask_again(*self._report.late, options=self._report.spec.options)

    def _ask_again(self, *gpus: str, options: bool = False, curve: bool = False) -> None:
        if self._report is None or why_not_live(self._state) is not None or self.running is not None:
            return
        spec = replace(self._report.spec, gpus=gpus, options=options, curve=curve)
        self.command_requested.emit(PlanFit(spec=spec, target=self._name if self._name in self._state.models else ""))

    def _plan_published(self, spec: FitSpec) -> None:
        """Set the form to a published step, and plan it without looking for what would help."""
        if why_not_live(self._state) is None and self.running is None:
            self.form.fill_in(spec, spec.source)
            self.command_requested.emit(PlanFit(spec=replace(spec, patience_seconds=PATIENCE_S)))


def _belongs(report: FitReport, table: FitReport) -> bool:
    """Whether a report is about cards of the plan that the table shows, or about those that it had no time for."""
    if report is table:
        return True
    spec, other = (replace(item.spec, gpus=(), options=False, curve=False) for item in (report, table))
    cards = {*(fit.gpu for fit in table.fits), *table.late}
    return spec == other and bool(report.spec.gpus) and cards.issuperset(report.spec.gpus)
