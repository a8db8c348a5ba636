"""The inspector: the facts of what is selected, and in one line below them what just happened. Main thread.

Everything that comes from the engine is shown as plain text, whatever it looks like.
"""

from __future__ import annotations

import re

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QScrollArea

from devexplorer.core.base import object_name
from devexplorer.core.records import Answer, Check, Combine, Command, ObjectSnapshot, Offer, Tie
from devexplorer.core.session import State
from devexplorer.gui.actions import row_of
from devexplorer.gui.objects.answer_view import OfferButtons
from devexplorer.gui.objects.facts import Preparing, device_facts, selection_facts
from devexplorer.gui.widgets import (
    EDGE_PX,
    CodeView,
    FactsTable,
    Panel,
    Role,
    ScrollArea,
    Sign,
    TextBlock,
    after_paint,
    hbox,
    push_button,
    set_look,
    show_text,
    thin_line,
    vbox,
    why_not_live,
)

_SIGN_PX = 16


class InspectorPanel(Panel):
    """Reads `state.answer` and what is selected: rows of the tree, or the device whose card was clicked since."""

    command_requested = Signal(object)
    """The command of an offer whose button was clicked."""
    doctor_requested = Signal(str)
    """What a check of this model found is to be shown."""

    def __init__(self, state: State) -> None:
        super().__init__("Inspector")
        self._state = state
        self._selection: tuple[str, ...] = ()
        self._device: str | None = None
        """What the facts are about in place of the selection."""
        self.answer: Answer | None = None
        """What just happened."""
        self._unfolded = False
        """Whether the user wants to see the details of what happens."""
        self.placement = FactsTable()
        self.pair = OfferButtons()
        self.pair.command_requested.connect(self.command_requested)
        self.line = thin_line()
        self.sign = Sign("error", "error", _SIGN_PX)
        self.sign.setAccessibleName("failed")
        self.title = TextBlock(Role.STRONG)
        self.details = push_button("Details", self._fold, look="quiet", tip="What happened in full, and its Python")
        self.details.setCheckable(True)
        self.doctor = push_button("Doctor", self._ask_doctor, look="quiet", tip="Show what the check found")
        self.words = TextBlock(words="soft")
        self.offers = OfferButtons(primary=True)
        self.offers.command_requested.connect(self.command_requested)
        self.facts = FactsTable()
        self.code = CodeView(state)
        self._preparing = Preparing()
        self._preparing.ready.connect(self.refresh)
        self._summed: dict[str, ObjectSnapshot] = {}
        self._summed_for: tuple[str, ...] | None = None
        """The snapshots and the selection that the placement is of; None: of a device."""
        self.scroll_area = self._build()
        self.scroll_area.verticalScrollBar().rangeChanged.connect(lambda: after_paint(self, self._show_refusal))
        self.set_content(self.scroll_area)
        self.refresh()

    def _build(self) -> QScrollArea:
        top = Qt.AlignmentFlag.AlignTop
        column = vbox(
            self.placement,
            self.pair,
            self.line,
            hbox((self.sign, 0, top), (self.title, 1), (self.details, 0, top), (self.doctor, 0, top)),
            self.words,
            self.offers,
            self.facts,
            self.code,
            None,
            spacing=10,
            margins=EDGE_PX,
        )
        return ScrollArea(column, "Facts of the selection, and what just happened")

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """Show what is known about these targets (`name` or `name:path`)."""
        if targets != self._selection or self._device is not None:
            self._selection = targets
            self._show_other(None)

    def set_device(self, device: str) -> None:
        """Show what is known about this device, until objects are selected again."""
        if device != self._device:
            self._show_other(device)

    def show_selection(self) -> None:
        """Show the selected objects again."""
        if self._selection:
            self.set_selection(self._selection)

    def _show_other(self, device: str | None) -> None:
        self._device = device
        self.details.setChecked(self._unfolded or not (self._selection or device))
        self.refresh()
        self.scroll_area.verticalScrollBar().setValue(0)

    def refresh(self) -> None:
        """Something happened, or objects changed: show it."""
        bar = self.scroll_area.verticalScrollBar()
        answer, place = self._state.answer, bar.value()
        is_news = answer is not self.answer
        if answer is not None and is_news:
            alone = not (self._selection or self._device)
            self.details.setChecked(answer.failed or self._unfolded or alone)
            place = 0 if alone else place
        self.answer = answer
        self._show_facts()
        self._show_answer()
        bar.setValue(place)  # a button that goes passes the keyboard on, and Qt scrolls to whatever gets it

    def refresh_texts(self) -> None:
        """The readings of a device, once or twice a second."""
        if self._device is not None:
            self._show_facts()

    def _show_refusal(self) -> None:
        """Scroll to its beginning, and to as much of the ways out as there is room for."""
        if self.answer is not None and self.answer.failed and self.details.isChecked():
            for part in (*self.offers.buttons, self.words, self.title):
                self.scroll_area.ensureWidgetVisible(part, 0, EDGE_PX)

    def _fold(self) -> None:
        self._unfolded = self.details.isChecked()
        self._show_answer()

    def _ask_doctor(self) -> None:
        if self.answer is not None and self.answer.subject is not None:
            self.doctor_requested.emit(self.answer.subject)

    def _show_answer(self) -> None:
        answer = self.answer or Answer(title="", words="")
        checked = self._was_check(answer)
        unfolded = self.details.isChecked() and not checked
        self.line.setVisible(bool(answer.title and self.placement.facts))
        self.sign.setVisible(answer.failed)
        set_look(self.title, "error" if answer.failed else "")
        show_text(self.title, self._named(answer))
        self.details.setVisible(bool(answer.title) and not checked)
        self.doctor.setVisible(checked)
        self.words.setText(answer.words)
        self.words.setVisible(unfolded and bool(answer.words))
        self.offers.show_offers(answer.offers)
        self.facts.set_facts(answer.facts)
        self.facts.setVisible(unfolded and bool(answer.facts))
        self.code.set_code(answer.code)
        self.code.setVisible(unfolded and bool(answer.code))
        self.code.recolour()

    def _named(self, answer: Answer) -> str:
        """Its title, which names what it is about where that is not what the facts are about."""
        about = answer.subject
        if about is None or answer.title.startswith(about) or about in re.findall(r"[\w-]+", answer.title):
            return answer.title
        if self._device is None and about in map(object_name, self._selection):
            return answer.title
        return f"{about}: {answer.title}"

    def _was_check(self, answer: Answer) -> bool:
        """Whether the Doctor tab shows it."""
        commands: list[Command | None] = [done.command for done in self._state.done if done.answer is answer]
        if (job := self._state.jobs.get(answer.request)) is not None:  # it is about to end
            commands = [job.command]
        return not answer.failed and len(commands) == 1 and isinstance(commands[0], Check)

    def _show_facts(self) -> None:
        if self._device is not None and self._device not in self._state.devices:
            self._device = None
        if self._device is not None:
            self._summed_for = None
            self.placement.set_facts(device_facts(self._state, self._device))
            simulated = ", simulated" if self._state.devices[self._device].info.simulated else ""
            self.set_subtitle(f"{self._device}{simulated}")
            self.pair.show_offers(())
            return
        chosen = {
            name: self._state.objects[name] for name in map(object_name, self._selection) if name in self._state.objects
        }
        if not _same(chosen, self._summed) or self._selection != self._summed_for:
            if not self._preparing.want(
                [self._state.row_tables.of(snapshot) for snapshot in chosen.values() if snapshot.rows]
            ):
                return  # what is shown stays until the sums of a large object are known
            self._summed, self._summed_for = chosen, self._selection
            self.placement.set_facts(selection_facts(self._state, self._selection))
        self.set_subtitle(_names(self._selection))
        self.pair.show_offers(self._offers_for_two())

    def _offers_for_two(self) -> tuple[Offer, ...]:
        """Two tensors can be added, two parameters of a model that have one shape can be tied."""
        if why_not_live(self._state) is not None or len(self._selection) != 2:
            return ()
        left, right = self._selection
        objects = self._state.objects
        if all(one in objects and objects[one].kind != "model" for one in (left, right)):
            return (Offer(f"Add {left} + {right}", Combine(left=left, right=right)),)
        first, second = row_of(self._state, left), row_of(self._state, right)
        if first is None or second is None or object_name(left) != object_name(right):
            return ()
        if first.kind != "parameter" or second.kind != "parameter" or first.shape != second.shape:
            return ()
        if first.identity is not None and first.identity == second.identity:
            return ()
        return (Offer(f"Tie {second.path} to {first.path}", Tie(first=left, second=right)),)


def _same(some: dict[str, ObjectSnapshot], others: dict[str, ObjectSnapshot]) -> bool:
    return some.keys() == others.keys() and all(snapshot is others[name] for name, snapshot in some.items())


def _names(targets: tuple[str, ...]) -> str:
    """`vgg16-bn`, `features.0 of vgg16-bn`, or how many."""
    if len(targets) != 1:
        return f"{len(targets)} objects" if targets else ""
    name, _, path = targets[0].partition(":")
    return f"{path} of {name}" if path else name
