"""The Split tab: budgets per device, a plan that can be edited, its picture, and the ways to carry it out. Main thread;
reads the state."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.core.base import BadInput, count_text, object_name, sentence
from devexplorer.core.records import AddVirtual, BuildModel, InsertHops, Join, ObjectSnapshot, PlanSplit, Split
from devexplorer.core.session import State
from devexplorer.gui.split.blocks import SplitBlocksModel
from devexplorer.gui.split.draft import Draft, matches
from devexplorer.gui.split.picture import SplitPicture
from devexplorer.gui.split.shares import Shares
from devexplorer.gui.split.table import BlocksTable
from devexplorer.gui.widgets import (
    EDGE_PX,
    ElidedLabel,
    EmptyState,
    Role,
    ScrollArea,
    can_add_virtual,
    hbox,
    holder,
    label,
    push_button,
    show_text,
    splitter,
    stack,
    vbox,
    why_not_live,
)
from devexplorer.gui.widgets.form_fields import Choice, free_bytes

NARROW_PX = 900
"""Below this width everything moves together."""
SHARES_PX, NARROW_SHARES_PX = 268, 188
LEAST_MODEL_PX, LEAST_SHARES_PX = 80, 36
MOST_NAMED = 3
"""Devices that a sentence lists; of more it says how many."""
LANES = 3
"""Lanes that the picture has room for without being scrolled."""
VIRTUAL_SPEC = "2x Tesla T4"
EXAMPLE = "two-towers"
_WIDE, _NARROW = [580, 420], [200, 290]
"""Shares of the table and the picture."""


class SplitPanel(QWidget):
    """Reads `state.split_plans`, `state.hops`, `state.objects`; `set_selection` says which model is meant."""

    command_requested = Signal(object)
    """A command record."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._drafts: dict[str, Draft] = {}
        self._note = ""
        """What the last edit did beside what was asked."""
        self._shown: Draft | None = None
        self._narrow = False
        self.models = Choice("model to split")
        self.models.currentIndexChanged.connect(self._on_model)
        self.where = ElidedLabel(words="dim")
        self.plan = push_button("Plan", self._ask)
        self.spread = push_button("Spread evenly", self._ask_evenly)
        self.apply = push_button("Apply", self._apply, look="primary")
        self.hops = push_button("Insert hops", self._toggle_hops)
        self.join = push_button("Join on", self._join)
        self.join_device = Choice("device to join on")
        self.shares = Shares(state.look_of)
        self.shares.dropped.connect(self._put)
        self.shares.edited.connect(self.refresh)
        self.free = push_button(
            "Use what is free",
            self._forget_budgets,
            look="quiet",
            tip="Forget these budgets: what is free on each device, less a tenth",
        )
        self.model = SplitBlocksModel()
        self.model.put_requested.connect(self._put)
        self.table = BlocksTable(self.model, state.look_of)
        self.picture = SplitPicture(state.look_of)
        self.picture.dropped.connect(self._put)
        self.summary = label(role=Role.LABEL, words="soft", wrap=True)
        self.warning = label(role=Role.LABEL, words="warning", wrap=True)
        self.unplanned = EmptyState("", "Plan")
        self.unplanned.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.unplanned.chosen.connect(self._take_offer)
        self.empty = EmptyState("There is no model yet that could be split over several devices.", f"Build {EXAMPLE}")
        self.empty.chosen.connect(lambda: self.command_requested.emit(BuildModel(recipe=EXAMPLE)))
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        buttons = (self.plan, self.spread, self.apply, self.hops, self.join, self.join_device)
        self.models.setMinimumWidth(LEAST_MODEL_PX)
        self._top = hbox(self.models, (self.where, 1), *buttons, margins=(EDGE_PX, 0, EDGE_PX, 0))
        shares = ScrollArea(self.shares, "Shares of the devices", sideways=True)
        shares.setMinimumHeight(LEAST_SHARES_PX)
        foot = hbox(self.free, None)
        self._left = holder(vbox((shares, 1), foot, spacing=4, margins=(EDGE_PX - 6, 0, 0, 0)))
        self._left.setMinimumWidth(SHARES_PX)
        area = ScrollArea(self.picture, "Picture of the split", sideways=True)
        area.setMinimumWidth(220)
        self._both = splitter(self.table, area, sizes=_WIDE, stretches=[1, 1])
        self._planned = stack(self._both, self.unplanned)
        self._row = splitter(self._left, self._planned, sizes=[SHARES_PX, 1000], stretches=[0, 1])
        for line in (self.summary, self.warning):
            line.setContentsMargins(EDGE_PX, 0, EDGE_PX, 0)
        content = vbox(self._top, (self._row, 1), self.summary, self.warning, spacing=6, margins=(0, 8, 0, 6))
        self._content = holder(content)
        self._stack = stack(self._content, self.empty)
        vbox(self._stack, parent=self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = event.size().width() < NARROW_PX
        if narrow != self._narrow:
            self._narrow = narrow
            self.shares.set_narrow(narrow)
            self._top.setSpacing(4 if narrow else 8)
            left = NARROW_SHARES_PX if narrow else SHARES_PX
            self._left.setMinimumWidth(left)
            self._row.setSizes([left, 1000])
            self._both.setSizes(_NARROW if narrow else _WIDE)
            self.refresh()

    # --- what the window calls

    @property
    def is_empty(self) -> bool:
        """Whether there is no model."""
        return self._stack.currentWidget() is self.empty

    @property
    def draft(self) -> Draft | None:
        """The plan on show, as edited."""
        return self._shown

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """Follow the tree: the model that is selected, or that holds what is selected."""
        name = next(map(object_name, targets), None)
        snapshot = None if name is None else self._state.objects.get(name)
        if snapshot is not None and snapshot.kind == "model":
            self._offer_models()
            self.models.choose(name)
        self.refresh()

    def refresh(self) -> None:
        """Show what is known now."""
        self._offer_models()
        ready = why_not_live(self._state) is None
        name = self.models.value
        self._stack.setCurrentWidget(self.empty if name is None else self._content)
        if name is None:
            self.empty.follow(self._state)
            return
        devices = self._devices()
        self.shares.set_devices(devices)
        self.table.set_devices(devices)
        self.join_device.offer([(device, device, "") for device in devices])
        snapshot = self._state.objects[name]
        self._take_plan(name)
        self._planned.setCurrentIndex(0 if self._shown is not None else 1)
        self.unplanned.sentence.setText(self._invitation(name, devices))
        self.unplanned.button.setText("Add two virtual GPUs" if self._offers_virtual() else "Plan")
        self.unplanned.follow(self._state)
        self._show(snapshot)
        self._enable(snapshot, ready)

    # --- what is shown

    def _offer_models(self) -> None:
        known = [snapshot for snapshot in self._state.objects.values() if snapshot.kind == "model"]
        self.models.offer([(model.name, model.name, f"{model.name}, {model.type}") for model in known])

    def _devices(self) -> list[str]:
        """Accelerators first: they are filled first."""
        return sorted(self._state.usable_devices, key=lambda device: device == "cpu")

    def _accelerators(self) -> list[str]:
        return [device for device in self._state.usable_devices if device != "cpu"]

    def _take_plan(self, name: str) -> None:
        plan = self._state.split_plans.get(name)
        draft = self._drafts.get(name)
        if plan is None:
            self._drafts.pop(name, None)
            draft = None
        elif draft is None or draft.plan is not plan:
            draft = self._drafts[name] = Draft(plan)
            self._note = ""
        if draft is not self._shown:
            self._shown = draft
            budgets = None if draft is None else {share.device: share.budget_bytes for share in draft.plan.shares}
            self.shares.set_budgets(budgets)

    def _show(self, snapshot: ObjectSnapshot) -> None:
        draft = self._shown
        now = [] if draft is None else draft.now(snapshot)
        self.model.show_draft(draft, now)
        for device, share in self.shares.rows.items():
            share.show_use(*((None, None) if draft is None else (draft.used_bytes(device), draft.budget_bytes(device))))
        placed = draft is not None and matches(draft, now)
        hops = self._state.hops.get(snapshot.name) if placed and snapshot.hops else None
        arrows = () if draft is None else draft.arrows(hops)
        self.picture.show_split(draft, self._lanes(draft), arrows)
        self.where.set_full_text("" if self._narrow else _where(snapshot))
        show_text(self.summary, self._summary(draft, snapshot, placed=placed, measured=hops is not None))
        lines = [] if draft is None else [*draft.plan.warnings, *_over_words(draft)]
        try:
            self.shares.budgets()
        except BadInput as error:
            lines += [sentence(finding) for finding in error.findings]
        show_text(self.warning, " ".join(lines))

    def _lanes(self, draft: Draft | None) -> list[str]:
        """Devices that blocks go to; of those with a budget as many as there is room for, to drop blocks on."""
        if draft is None:
            return []
        used = [device for device in self._devices() if device in draft.devices]
        spare = [device for device in self._devices() if device not in used and draft.budget_bytes(device)]
        chosen = {*used, *spare[: max(LANES - len(used), 0)]}
        return [device for device in self._devices() if device in chosen]

    def _summary(self, draft: Draft | None, snapshot: ObjectSnapshot, *, placed: bool, measured: bool) -> str:
        if draft is None:
            return ""
        words = f"{count_text(len(draft.blocks), 'block')}, {count_text(draft.hops, 'hop')} if they run in their order."
        if placed:
            words += " The model is split like this."
            if measured:
                words += " Arrows show the hops of the latest forward."
            elif snapshot.hops:
                words += " Run a forward to see what hops."
        elif draft.edited:
            words += " Edited: Apply moves the blocks."
        undo = self._state.undo
        if isinstance(undo.command, Split | Join | InsertHops) and undo.command.target == snapshot.name:
            words += f" Undo (Ctrl+Z) takes back {undo.title}."
        return f"{words} {self._note}".strip()

    def _invitation(self, name: str, devices: list[str]) -> str:
        if not self._accelerators():
            return (
                f"There is only the CPU. A plan shows the blocks of {name}; virtual GPUs would give them somewhere"
                " to go."
            )
        cards = devices[:-1]
        if len(cards) == 1:
            return f"A split needs a second GPU beside {cards[0]}. Plan shows what would go to the CPU."
        over = " and ".join(cards) if len(cards) <= MOST_NAMED else f"{len(cards)} devices"
        return f"How could {name} be split over {over}? The plan keeps tied weights together and moves nothing."

    def _offers_virtual(self) -> bool:
        return len(self._accelerators()) < 2 and can_add_virtual(self._state)

    def _enable(self, snapshot: ObjectSnapshot, ready: bool) -> None:
        draft = self._shown
        reason = "" if ready else why_not_live(self._state) or ""
        accelerators, dispatched = self._accelerators(), snapshot.dispatched is not None
        placed = draft is not None and matches(draft, draft.now(snapshot)) and snapshot.hops
        self.spread.setVisible(len(accelerators) > 1)
        self.hops.setText("Remove hops" if snapshot.hops else "Insert hops")
        hops = (
            "Activations stay where they are" if snapshot.hops else "Let each part fetch its inputs to its own device"
        )
        for button, possible, meaning in (
            (self.plan, True, "Ask how the model could be split within these budgets; nothing moves"),
            (
                self.spread,
                draft is not None and len(draft.blocks) > 1,
                "Plan with equal budgets for all accelerators, as small as they can be",
            ),
            (
                self.apply,
                draft is not None and not placed and not dispatched,
                _apply_words(draft, placed=bool(placed), dispatched=dispatched),
            ),
            (self.hops, not dispatched, hops),
            (self.join, True, "Move everything to one device, without hops and without hooks of accelerate"),
        ):
            button.setEnabled(ready and possible)
            button.setToolTip(reason or meaning)

    # --- what is asked for

    def _on_model(self, _index: int) -> None:
        self._note = ""
        self.refresh()

    def _forget_budgets(self) -> None:
        self.shares.set_budgets(None)
        self.refresh()

    def _ask(self) -> None:
        try:
            budgets = self.shares.budgets()
        except BadInput:  # it is said below the table
            self.refresh()
            return
        if budgets and len(budgets) < len(self.shares.rows):
            budgets = {device: budgets.get(device, self._free(device)) for device in self.shares.rows}
        self.command_requested.emit(PlanSplit(target=self.models.value, budgets=budgets))

    def _take_offer(self) -> None:
        if self._offers_virtual():
            self.command_requested.emit(AddVirtual(spec=VIRTUAL_SPEC))
        else:
            self._ask()

    def _free(self, device: str) -> int:
        """What the engine would take: what is free, less a tenth."""
        free = free_bytes(self._state.devices[device])
        return 0 if free is None else free - free // 10

    def _ask_evenly(self) -> None:
        if self._shown is not None:
            budgets = self._shown.even_budgets(self._accelerators())
            self.command_requested.emit(PlanSplit(target=self.models.value, budgets=budgets))

    def _put(self, places: list[int], device: str) -> None:
        draft = self._shown
        if draft is None or not all(0 <= place < len(draft.blocks) for place in places):
            return
        along = draft.put(places, device)
        paths = ", ".join(block.path or "the model" for block in along)
        self._note = f"Moved along to {device}, because they share a tensor: {paths}." if along else ""
        self.refresh()

    def _apply(self) -> None:
        if self._shown is not None:
            self.command_requested.emit(self._shown.command())

    def _toggle_hops(self) -> None:
        name = self.models.value
        self.command_requested.emit(InsertHops(target=name, on=not self._state.objects[name].hops))

    def _join(self) -> None:
        self.command_requested.emit(Join(target=self.models.value, device=self.join_device.value))


def _where(snapshot: ObjectSnapshot) -> str:
    held = ", ".join(snapshot.rows[0].devices if snapshot.rows else ())  # an optimizer counts its steps on the CPU
    words = f"{snapshot.type} on {held}" if held else snapshot.type
    if snapshot.dispatched is not None:
        return f"{words}. {snapshot.dispatched}"
    return f"{words}, with hops" if snapshot.hops else words


def _over_words(draft: Draft) -> list[str]:
    over = draft.over()
    if not over:
        return []
    return [f"▲ More than the budget of {' and '.join(over)}: move blocks away, or raise it and plan again."]


def _apply_words(draft: Draft | None, *, placed: bool, dispatched: bool) -> str:
    if dispatched:
        return "accelerate dispatched this model: join it first"
    if draft is None:
        return "No plan yet"
    return (
        "The model is split like this already"
        if placed
        else "Move the blocks to these devices and let activations follow; one undo"
    )
