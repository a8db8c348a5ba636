"""The Split tab: budgets per device, a plan that can be edited, its picture, and the ways to carry it out. Main thread;
reads the state."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QWidget

from devexplorer.core.base import BadInput, count_text, object_name, sentence
from devexplorer.core.records import AddVirtual, BuildModel, ObjectSnapshot
from devexplorer.core.session import State
from devexplorer.core.split.draft import Draft, matches
from devexplorer.core.split.records import InsertHops, Join, PlanSplit, Split
from devexplorer.core.split.state import SplitState
from devexplorer.gui.split.blocks import BlocksTable, SplitBlocksModel
from devexplorer.gui.split.picture import SplitPicture
from devexplorer.gui.split.shares import Shares
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

SHARES_PX = 254
LEAST_MODEL_PX, LEAST_SHARES_PX, LEAST_PICTURE_PX = 108, 36, 154
MOST_NAMED = 3
"""Devices that a sentence lists; of more it says how many."""
VIRTUAL_SPEC = "2x Tesla T4"
EXAMPLE = "two-towers"


class SplitPanel(QWidget):
    """Reads `SplitState` and `state.objects`; `set_selection` says which model is meant."""

    command_requested = Signal(object)
    """A command record."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._drafts: dict[str, Draft] = {}
        self._note = ""
        """What the last edit did beside what was asked."""
        self.draft: Draft | None = None
        """The plan shown, as edited."""
        self.models = Choice("model to split")
        self.models.currentIndexChanged.connect(self._on_model)
        self.plan = push_button("Plan", self._ask)
        self.spread = push_button("Spread evenly", self._ask_evenly)
        self.apply = push_button("Apply", self._apply, look="primary")
        self.hops = push_button("Remove hops", self._toggle_hops)
        self.hops.setMinimumWidth(self.hops.sizeHint().width())  # "Insert hops" is shorter: its neighbours would move
        self.join = QPushButton("Join on ▾")
        self.join.setMenu(QMenu(self.join))
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
        self.summary = label(role=Role.LABEL, words="soft", wrap=True)
        self.warning = ElidedLabel(Role.LABEL, "warning")
        self.unplanned = EmptyState("", "Add two virtual GPUs")
        self.unplanned.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.unplanned.chosen.connect(lambda: self.command_requested.emit(AddVirtual(spec=VIRTUAL_SPEC)))
        self.empty = EmptyState("There is no model yet that could be split over several devices.", f"Build {EXAMPLE}")
        self.empty.chosen.connect(lambda: self.command_requested.emit(BuildModel(recipe=EXAMPLE)))
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        buttons = (self.plan, self.spread, self.apply, self.hops, self.join)
        self.models.setMinimumWidth(LEAST_MODEL_PX)
        top = hbox(self.models, None, *buttons, spacing=6, margins=(EDGE_PX, 0, EDGE_PX, 0))
        shares = ScrollArea(self.shares, "Shares of the devices", sideways=True)
        shares.setMinimumHeight(LEAST_SHARES_PX)
        left = holder(vbox(shares, margins=(EDGE_PX - 6, 0, 0, 0)))
        left.setMinimumWidth(SHARES_PX)
        self._area = ScrollArea(self.picture, "Picture of the split", sideways=True)
        self._area.setMinimumWidth(LEAST_PICTURE_PX)
        self._both = splitter(self.table, self._area, sizes=(580, 420), stretches=(1, 1))
        self._planned = stack(self._both, self.unplanned)
        row = splitter(left, self._planned, sizes=(SHARES_PX, 1000), stretches=(0, 1))
        said = vbox(self.summary, self.warning, spacing=0)
        foot = hbox(self.free, (said, 1), margins=(EDGE_PX - 6, 0, EDGE_PX, 0))
        self._content = holder(vbox(top, (row, 1), foot, spacing=6, margins=(0, 8, 0, 6)))
        self._stack = stack(self._content, self.empty)
        vbox(self._stack, parent=self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._give_lanes_room()

    def _give_lanes_room(self) -> None:
        """The table goes without some of its columns before the picture has to be scrolled sideways."""
        room, needed = sum(self._both.sizes()), self.picture.sizeHint().width() + 2 * EDGE_PX  # and the scroll bar
        if self._both.sizes()[1] < needed:
            self._both.setSizes([room - needed, needed])

    # --- what the window calls

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
        self._offer_devices(devices)
        snapshot = self._state.objects[name]
        self._take_plan(name)
        self._planned.setCurrentIndex(0 if self.draft is not None else 1)
        self.unplanned.sentence.setText(self._invitation(name, devices))
        self.unplanned.button.setVisible(len(self._accelerators()) < 2 and can_add_virtual(self._state))
        self.unplanned.follow(self._state)
        self._show(snapshot)
        self._enable(snapshot, ready)

    # --- what is shown

    def _offer_models(self) -> None:
        known = [snapshot for snapshot in self._state.objects.values() if snapshot.kind == "model"]
        self.models.offer([(model.name, model.name, f"{model.name}, {model.type}") for model in known])

    def _offer_devices(self, devices: list[str]) -> None:
        menu = self.join.menu()
        if [action.text() for action in menu.actions()] != devices:
            menu.clear()
            for device in devices:
                menu.addAction(device, partial(self._join, device))

    def _devices(self) -> list[str]:
        """Accelerators first: they are filled first."""
        return sorted(self._state.usable_devices, key=lambda device: device == "cpu")

    def _accelerators(self) -> list[str]:
        return [device for device in self._state.usable_devices if device != "cpu"]

    def _take_plan(self, name: str) -> None:
        plan = self._state.part(SplitState).plans.get(name)
        draft = self._drafts.get(name)
        if plan is None:
            self._drafts.pop(name, None)
            draft = None
        elif draft is None or draft.plan is not plan:
            draft = self._drafts[name] = Draft(plan)
            self._note = ""
        if draft is not self.draft:
            self.draft = draft
            budgets = None if draft is None else {share.device: share.budget_bytes for share in draft.plan.shares}
            self.shares.set_budgets(budgets)

    def _show(self, snapshot: ObjectSnapshot) -> None:
        draft = self.draft
        now = [] if draft is None else draft.now(snapshot)
        self.model.show_draft(draft, now)
        for device, share in self.shares.rows.items():
            share.show_use(*((None, None) if draft is None else (draft.used_bytes(device), draft.budget_bytes(device))))
        placed = draft is not None and matches(draft, now)
        hops = self._state.part(SplitState).hops.get(snapshot.name) if placed and snapshot.hops else None
        arrows = () if draft is None else draft.arrows(hops)
        used = [] if draft is None else [device for device in self._devices() if device in draft.devices]
        lanes = self.picture.lanes
        self.picture.show_split(draft, used, arrows)
        if self.picture.lanes != lanes:
            self._give_lanes_room()
        show_text(self.summary, self._summary(draft, snapshot, placed=placed, measured=hops is not None))
        lines = [] if draft is None else list(draft.plan.warnings)
        if snapshot.dispatched is not None:
            lines.append(sentence(snapshot.dispatched))
        if draft is not None and (over := " and ".join(draft.over())):
            lines.append(f"▲ More than the budget of {over}: move blocks away, or raise it and plan again.")
        try:
            self.shares.budgets()
        except BadInput as error:
            lines += [sentence(finding) for finding in error.findings]
        self.warning.set_full_text(" ".join(lines))
        self.warning.setVisible(bool(lines))  # an empty line would lift what is beside the button

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
        return f"Plan shows how {name} could be split over {over}. Tied weights stay together, and nothing moves."

    def _enable(self, snapshot: ObjectSnapshot, ready: bool) -> None:
        draft = self.draft
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

    def _free(self, device: str) -> int:
        """What the engine would take: what is free, less a tenth."""
        free = free_bytes(self._state.devices[device])
        return 0 if free is None else free - free // 10

    def _ask_evenly(self) -> None:
        if self.draft is not None:
            budgets = self.draft.even_budgets(self._accelerators())
            self.command_requested.emit(PlanSplit(target=self.models.value, budgets=budgets))

    def _put(self, places: list[int], device: str) -> None:
        draft = self.draft
        if draft is None or not all(0 <= place < len(draft.blocks) for place in places):
            return
        along = draft.put(places, device)
        paths = ", ".join(block.path or "the model" for block in along)
        self._note = f"Moved along to {device}, because they share a tensor: {paths}." if along else ""
        self.refresh()

    def _apply(self) -> None:
        if self.draft is not None:
            self.command_requested.emit(self.draft.command())

    def _toggle_hops(self) -> None:
        name = self.models.value
        self.command_requested.emit(InsertHops(target=name, on=not self._state.objects[name].hops))

    def _join(self, device: str) -> None:
        self.command_requested.emit(Join(target=self.models.value, device=device))


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
