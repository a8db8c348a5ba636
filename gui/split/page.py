"""The Split tab: budgets per device, a plan that can be edited, its picture, and the ways to carry it out. Main thread;
reads the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QPainter,
    QPainterPath,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QWidget

from devexplorer.core.base import BadInput, Findings, bytes_text, count_text, object_name, parse_bytes, sentence
from devexplorer.core.records import AddVirtual, BuildModel, ObjectSnapshot
from devexplorer.core.session import State
from devexplorer.core.split.draft import Draft, matches
from devexplorer.core.split.records import InsertHops, Join, PlanSplit, Split
from devexplorer.core.split.state import SplitState
from devexplorer.gui.split.plan_view import BlocksTable, SplitBlocksModel, SplitPicture, decode
from devexplorer.gui.widgets import (
    CHIP_PX,
    CPU,
    EDGE_PX,
    RIGHT,
    Choice,
    ElidedLabel,
    EmptyState,
    Look,
    Picture,
    Role,
    ScrollArea,
    can_add_virtual,
    chip_width,
    current_theme,
    device_colour,
    grid,
    hbox,
    holder,
    label,
    line_edit,
    paint_device,
    push_button,
    set_look,
    show_text,
    splitter,
    stack,
    vbox,
    why_not_live,
)

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
            "Use free memory",
            self._forget_budgets,
            look="quiet",
            tip="Reset the budgets to the free memory of each device, less a tenth",
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
        if draft is not None and not placed and (over := " and ".join(draft.over())):
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
        words = f"{count_text(len(draft.blocks), 'block')}, {count_text(draft.hops, 'hop')} if they run in order."
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
            return "A split needs a second GPU. Plan shows what would go to the CPU."
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
                "Plan with an equal part on each accelerator",
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
        free = self._state.devices[device].free_bytes
        return 0 if free is None else free - free // 10

    def _ask_evenly(self) -> None:
        self.command_requested.emit(PlanSplit(target=self.models.value, even=True))

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


# The devices of a split: the budget of each, and how much of it the plan uses; blocks can be dropped on them.

BAR_PX = 8
FIELD_PX = 92
AUTOMATIC = "automatic"
"""Stands in a field whose budget the engine finds out."""


class ShareBar(Picture):
    """How much of a budget is used: in the device's colour, in that of warnings beyond it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._device = CPU
        self._used, self._budget = 0, 0
        self.setFixedHeight(BAR_PX)

    @property
    def over(self) -> bool:
        """Whether more is used than there is."""
        return self._used > self._budget

    def show_share(self, used: int, budget: int, device: int) -> None:
        """Show `used` of `budget` bytes; `device`: its palette index."""
        self._used, self._budget, self._device = used, budget, device
        self.update()

    def draw(self, painter: QPainter) -> None:
        whole = QRectF(self.rect())
        outline = QPainterPath()
        outline.addRoundedRect(whole, 2, 2)
        painter.setClipPath(outline)
        painter.fillRect(whole, current_theme().bar_free)
        scale = max(self._used, self._budget, 1)
        inside = whole.width() * min(self._used, self._budget) / scale
        painter.fillRect(
            QRectF(0, 0, max(inside, 1.0 if self._used else 0.0), whole.height()), QColor(device_colour(self._device))
        )
        if self.over:
            beyond = QRectF(inside, 0, whole.width() - inside, whole.height())
            painter.fillRect(beyond, current_theme().panel)
            # after a gap: a device's colour can be close to it
            painter.fillRect(beyond.adjusted(2, 0, 0, 0), current_theme().warning)


class DeviceShare(Picture):
    """One device: its chip, its budget to type, its bar. Blocks that are dropped here go there."""

    dropped = Signal(object, str)
    """Places of blocks, and the device."""
    edited = Signal()

    def __init__(self, device: str, look: Look) -> None:
        super().__init__(f"share of {device}")
        self.device, self._look = device, look
        self._bytes: int | None = None
        """The exact budget of the text in the field; None: it was typed, or there is none."""
        self._target = False
        self.setAcceptDrops(True)
        self.field = line_edit(
            placeholder=AUTOMATIC,
            name=f"budget of {device}",
            width_px=FIELD_PX,
            tip="Bytes of the model that may be here, such as 12 GiB; 0 leaves the device out, empty: its free memory",
        )
        self.field.textEdited.connect(self._on_edit)
        self.bar = ShareBar(f"used of the budget of {device}")
        self.words = label(role=Role.LABEL, words="dim", align=RIGHT)
        places = grid(8, 0, self)
        places.setContentsMargins(6, 1, 6, 1)
        places.setColumnStretch(1, 1)
        places.setColumnMinimumWidth(0, chip_width("vgpu:00") + 8)  # the chip is painted there: bars begin in line
        places.addWidget(self.words, 0, 1)
        places.addWidget(self.bar, 1, 1)
        places.addWidget(self.field, 0, 2, 2, 1)

    def budget(self) -> int | None:
        """Bytes; None: not given. `BadInput` when what was typed is no number of bytes."""
        if self._bytes is not None:
            return self._bytes
        text = self.field.text().strip()
        if not text:
            return None
        try:
            return parse_bytes(text)
        except BadInput as error:
            raise BadInput(f"{self.device}: {error}") from error

    def set_budget(self, size: int | None) -> None:
        """Write a budget into the field; None: the engine finds it out."""
        self._bytes = size
        if size is None:
            text = ""
        elif size == 0:
            text = "0"
        else:
            text = bytes_text(size)
        self.field.setText(text)
        self.field.setCursorPosition(0)

    def show_use(self, used: int | None, budget: int | None) -> None:
        """What the plan puts here; None: there is no plan."""
        index, simulated = self._look(self.device)
        self.bar.show_share(used or 0, budget or 0, index)
        over = used is not None and used > (budget or 0)
        if used is None:
            shown = described = "budget"
        elif not budget and not used:
            shown, described = "left out", "left out of the plan"
        else:
            shown = f"{'▲ ' if over else ''}{bytes_text(used)} of"
            described = f"{bytes_text(used)} of {bytes_text(budget or 0)}" + (
                f", {bytes_text(used - (budget or 0))} too much" if over else ""
            )
        self.words.setText(shown)
        self.words.setToolTip(f"{described}{' (a simulated device)' if simulated else ''}")
        set_look(self.words, "warning" if over else "dim")
        self.bar.setAccessibleDescription(described)

    def _on_edit(self) -> None:
        self._bytes = None
        self.edited.emit()

    # --- drops

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if decode(event.mimeData()):
            self._mark(True)
            event.acceptProposedAction()

    def dragLeaveEvent(self, _event: QDragLeaveEvent) -> None:
        self._mark(False)

    def dropEvent(self, event: QDropEvent) -> None:
        self._mark(False)
        event.acceptProposedAction()
        self.dropped.emit(decode(event.mimeData()), self.device)

    def _mark(self, target: bool) -> None:
        self._target = target
        self.update()

    def draw(self, painter: QPainter) -> None:
        if self._target:
            painter.setPen(QPen(QColor(current_theme().accent), 1.5))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 5, 5)
        middle = self.field.geometry().center().y()
        chip = QRectF(6.5, middle - CHIP_PX / 2 + 0.5, chip_width(self.device), CHIP_PX - 1)
        paint_device(painter, chip, self.device, self._look)


class Shares(QWidget):
    """All devices, one below the other."""

    dropped = Signal(object, str)
    edited = Signal()

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self.rows: dict[str, DeviceShare] = {}
        self._layout = vbox(None, spacing=2, parent=self)

    def set_devices(self, devices: Sequence[str]) -> None:
        """Show these; what was typed for those that stay is kept."""
        if list(self.rows) == list(devices):
            return
        old, self.rows = self.rows, {}
        for share in old.values():
            self._layout.removeWidget(share)
        for place, device in enumerate(devices):
            if device in old:
                share = old.pop(device)
            else:
                share = DeviceShare(device, self._look)
                share.dropped.connect(self.dropped)
                share.edited.connect(self.edited)
            self.rows[device] = share
            self._layout.insertWidget(place, share)
        for share in old.values():
            share.setParent(None)
            share.deleteLater()

    def set_budgets(self, budgets: Mapping[str, int] | None) -> None:
        """Write these into the fields, 0 for others; None: the engine finds them out."""
        for device, share in self.rows.items():
            share.set_budget(None if budgets is None else budgets.get(device, 0))

    def budgets(self) -> dict[str, int]:
        """The values of the fields, empty ones left out; `BadInput` with everything that is no number."""
        findings = Findings()
        budgets = {device: findings.checked(share.budget) for device, share in self.rows.items()}
        findings.demand_none()
        return {device: budget for device, budget in budgets.items() if budget is not None}
