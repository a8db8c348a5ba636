"""The inspector: what just happened, in words and in Python, and where the selection is placed. Main thread.

Everything that comes from the engine is shown as plain text, whatever it looks like.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QScrollArea

from devexplorer.core.base import object_name
from devexplorer.core.records import Answer, Combine, ObjectSnapshot, Offer
from devexplorer.core.session import State
from devexplorer.gui.objects.answer_view import OfferButtons
from devexplorer.gui.objects.selection_facts import selection_facts
from devexplorer.gui.objects.totals import Preparing
from devexplorer.gui.widgets import (
    EDGE_PX,
    CodeView,
    EmptyState,
    FactsTable,
    Panel,
    Role,
    ScrollArea,
    Sign,
    TextBlock,
    hbox,
    set_look,
    show_text,
    vbox,
    why_not_live,
)

_SIGN_PX = 16
_LABELS_AT_MOST_PX = 130
_EMPTY = "Select an object to see where it is. What happens to it is explained here."


class InspectorPanel(Panel):
    """Reads `state.answer`, `state.answers` and the selected rows.

    Shown is the newest of two: the last thing that happened, or the latest answer about what was selected since.
    """

    command_requested = Signal(object)
    """The command of an offer whose button was clicked."""
    build_requested = Signal(str)
    """The empty state's button: name of a recipe."""

    def __init__(self, state: State) -> None:
        super().__init__("Inspector")
        self._state = state
        self._selection: tuple[str, ...] = ()
        self.answer: Answer | None = None
        """The answer on show."""
        self._seen: Answer | None = None
        self._told: Answer | None = None
        """The answer that is on show."""
        self.title = TextBlock(Role.STRONG)
        self.words = TextBlock(words="soft")
        self.values = CodeView()
        self.values.setAccessibleName("Values")
        self.values.copy_button.setAccessibleName("copy the values")
        self.facts = FactsTable()
        self.code = CodeView(state)
        self.heading = TextBlock(Role.STRONG)
        self.placement = FactsTable()
        self.sign = Sign("error", "error", _SIGN_PX)
        self.sign.setAccessibleName("failed")
        self.offers = OfferButtons(primary=True)
        self.offers.command_requested.connect(self.command_requested)
        self.pair = OfferButtons()
        self.pair.command_requested.connect(self.command_requested)
        self._preparing = Preparing()
        self._preparing.ready.connect(self.refresh)
        self._summed: dict[str, ObjectSnapshot] = {}
        self._summed_for: tuple[str, ...] = ()
        """The snapshots and the selection that the placement is of."""
        self.scroll_area = self._build()
        self.set_content(self.scroll_area)
        self.empty = EmptyState(_EMPTY, "Build mlp")
        self.empty.chosen.connect(lambda: self.build_requested.emit("mlp"))
        self.set_empty_state(self.empty)
        self.refresh()

    def _build(self) -> QScrollArea:
        top = hbox((self.sign, 0, Qt.AlignmentFlag.AlignTop), (self.title, 1))
        column = vbox(
            top,
            self.words,
            self.offers,
            self.facts,
            self.code,
            self.heading,
            self.pair,
            self.placement,
            self.values,
            None,
            spacing=10,
            margins=EDGE_PX,
        )
        return ScrollArea(column, "What happened, and the placement of the selection")

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """Show what is known about these targets (`name` or `name:path`)."""
        if targets == self._selection:
            return
        self._selection = targets
        if len(targets) == 1:
            self.answer = self._state.latest_answer(targets[0])
        elif targets:
            self.answer = None  # it would be about one of them
        self.refresh()

    def refresh(self) -> None:
        """Something happened, or objects changed: show the newest."""
        if self._state.answer is not self._seen:
            self._seen = self.answer = self._state.answer
        bar = self.scroll_area.verticalScrollBar()
        place = bar.value() if self.answer is self._told else 0  # another answer is read from its beginning
        self._told = self.answer
        self._show_answer()
        self._show_selection()
        self._align()
        bar.setValue(place)  # a button that goes passes the keyboard on, and Qt scrolls to whatever gets it
        self.show_empty(self.answer is None and not self.placement.facts)
        self.empty.follow(self._state)
        self.set_subtitle(_names(self._selection))

    def _show_answer(self) -> None:
        answer = self.answer
        self.sign.setVisible(answer is not None and answer.failed)
        show_text(self.title, answer.title if answer else "")
        show_text(self.words, answer.words if answer else "")
        set_look(self.title, "error" if answer is not None and answer.failed else "")
        self.facts.set_facts(answer.facts if answer else ())
        self.facts.setVisible(bool(self.facts.facts))
        self.code.set_code(answer.code if answer else "")
        self.code.setVisible(bool(answer and answer.code))
        self.code.recolour()
        self.offers.show_offers(answer.offers if answer else ())

    def _show_selection(self) -> None:
        chosen = {
            name: self._state.objects[name] for name in map(object_name, self._selection) if name in self._state.objects
        }
        if not _same(chosen, self._summed) or self._selection != self._summed_for:
            if not self._preparing.want(
                [self._state.row_tables.of(snapshot) for snapshot in chosen.values() if snapshot.rows]
            ):
                return  # what is on show stays until the sums of a large object are known
            self._summed, self._summed_for = chosen, self._selection
            self.placement.set_facts(selection_facts(self._state, self._selection))
        self.placement.setVisible(bool(self.placement.facts))
        show_text(self.heading, f"Placement of {_names(self._selection)}" if self.placement.facts else "")
        self.pair.show_offers(self._sum_of_two())
        values = ""
        if len(self._selection) == 1 and self._selection[0] in self._state.objects:
            values = self._state.objects[self._selection[0]].values or ""
        self.values.set_code(values)
        self.values.setVisible(bool(values))

    def _sum_of_two(self) -> tuple[Offer, ...]:
        """Where two tensors are selected: add them."""
        pair = self._selection
        objects, live = self._state.objects, why_not_live(self._state) is None
        if not live or len(pair) != 2 or any(one not in objects or objects[one].kind == "model" for one in pair):
            return ()
        left, right = pair
        return (Offer(f"Add {left} + {right}", Combine(left=left, right=right)),)

    def _align(self) -> None:
        """One edge for the values of both tables, unless that would leave them too little room."""
        widest = max(table.label_width for table in (self.facts, self.placement))
        for table in (self.facts, self.placement):
            table.set_label_width(widest if widest <= _LABELS_AT_MOST_PX else 0)


def _same(some: dict[str, ObjectSnapshot], others: dict[str, ObjectSnapshot]) -> bool:
    return some.keys() == others.keys() and all(snapshot is others[name] for name, snapshot in some.items())


def _names(targets: tuple[str, ...]) -> str:
    """`vgg16-bn`, `features.0 of vgg16-bn`, or how many."""
    if len(targets) != 1:
        return f"{len(targets)} objects" if targets else ""
    name, _, path = targets[0].partition(":")
    return f"{path} of {name}" if path else name
