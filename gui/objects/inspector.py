"""The inspector: the facts of what is selected, and in one line below them what just happened. Main thread.

Everything that comes from the engine is shown as plain text, whatever it looks like.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QScrollArea

from devexplorer.core.base import MISSING, bytes_text, count_text, object_name, shape_text
from devexplorer.core.commands.registry import spec_of
from devexplorer.core.feature import named
from devexplorer.core.records import Answer, Check, Combine, Command, Fact, ObjectSnapshot, Offer, Row
from devexplorer.core.session import CodedColumn, Device, Ints, RowTable, State
from devexplorer.core.telemetry.device_facts import facts
from devexplorer.core.telemetry.memory_breakdown import PART_TEXTS
from devexplorer.gui.actions import HeldTensors, places_of
from devexplorer.gui.objects.answer_view import OfferButtons
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
    segments,
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
        self.ways = OfferButtons()
        self.ways.command_requested.connect(self.command_requested)
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
            self.ways,
            self.line,
            hbox((self.sign, 0, top), (self.title, 1), (self.details, 0, top), (self.doctor, 0, top)),
            self.words,
            self.offers,
            self.facts,
            self.code,
            None,
            spacing=8,
            margins=(EDGE_PX, EDGE_PX, EDGE_PX, 8),
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
            self.details.setChecked(answer.failed or self._unfolded or alone or self._was_question(answer))
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
        return not answer.failed and isinstance(self._command_of(answer), Check)

    def _was_question(self, answer: Answer) -> bool:
        command = self._command_of(answer)
        return command is not None and spec_of(command).question

    def _command_of(self, answer: Answer) -> Command | None:
        if (job := self._state.jobs.get(answer.request)) is not None:  # it is about to end
            return job.command
        commands = [done.command for done in self._state.done if done.answer is answer]
        return commands[0] if len(commands) == 1 else None

    def _show_facts(self) -> None:
        if self._device is not None and self._device not in self._state.devices:
            self._device = None
        if self._device is not None:
            self._summed_for = None
            self.placement.set_facts(device_facts(self._state, self._device))
            simulated = ", simulated" if self._state.devices[self._device].info.simulated else ""
            self.set_subtitle(f"{self._device}{simulated}")
            self.ways.show_offers(())
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
        self.ways.show_offers(self._offers())

    def _offers(self) -> tuple[Offer, ...]:
        """Two tensors can be added; features know more."""
        if why_not_live(self._state) is not None or len(self._selection) not in (1, 2):
            return ()
        objects = self._state.objects
        if len(self._selection) == 2 and all(
            one in objects and objects[one].kind != "model" for one in self._selection
        ):
            left, right = self._selection
            return (Offer(f"Add {left} + {right}", Combine(left=left, right=right)),)
        said = () if self.answer is None else self.answer.offers
        ways = (offer for offers in named("offers") for offer in offers(self._state, *self._selection))
        return tuple(offer for offer in ways if offer not in said)


def _same(some: dict[str, ObjectSnapshot], others: dict[str, ObjectSnapshot]) -> bool:
    return some.keys() == others.keys() and all(snapshot is others[name] for name, snapshot in some.items())


def _names(targets: tuple[str, ...]) -> str:
    """`vgg16-bn`, `features.0 of vgg16-bn`, or how many."""
    if len(targets) != 1:
        return f"{len(targets)} objects" if targets else ""
    name, _, path = targets[0].partition(":")
    return f"{path} of {name}" if path else name


# What the inspector says of what is selected, a device or objects: what it is, where its bytes are, what is out of
# the ordinary. Main thread; only reads the state.
#
# The columns of large objects are read a slice at a time (`Preparing`): the window goes on meanwhile.

AT_ONCE = 4_000
"""Rows whose columns are read in well under 5 ms, so at once."""


class Sum(NamedTuple):
    """Some tensors."""

    tensors: int
    bytes: int


class Totals(NamedTuple):
    """What some tensors come to; every tensor once."""

    devices: dict[str, Sum]
    dtypes: dict[str, Sum]
    kinds: dict[str, Sum]
    """`parameter`, `buffer`, `gradient`, `state`, `tensor`."""

    @classmethod
    def of(cls, held: Iterable[HeldTensors]) -> Totals:
        """Add up."""
        result = cls({}, {}, {})
        for outline, places in held:
            sizes = outline.bytes[places]
            for devices, found in _sums(outline.column("devices"), places, sizes):
                for device in devices:  # a tensor has one
                    _add(result.devices, device, found)
            for dtype, found in _sums(outline.column("dtype"), places, sizes):
                _add(result.dtypes, dtype or "no dtype", found)
            for kind, found in _sums(outline.column("kind"), places, sizes):
                _add(result.kinds, kind, found)
        return cls(*({name: part[name] for name in sorted(part)} for part in result))


def _sums(column: CodedColumn, places: Ints, sizes: Ints) -> Iterable[tuple[Any, Sum]]:
    numbers = column.numbers[places]
    counts = np.bincount(numbers, minlength=len(column.codes))
    order = np.argsort(numbers, kind="stable")
    added = np.concatenate(([0], np.cumsum(sizes[order])))[np.concatenate(([0], np.cumsum(counts)))]
    for index, value in enumerate(column.codes):
        if counts[index]:
            yield value, Sum(int(counts[index]), int(added[index + 1] - added[index]))


def _add(sums: dict[str, Sum], name: str, more: Sum) -> None:
    before = sums.get(name, Sum(0, 0))
    sums[name] = Sum(before.tensors + more.tensors, before.bytes + more.bytes)


class Preparing(QObject):
    """Reads the columns of large objects a slice at a time, between other work of the window."""

    ready = Signal()
    """Everything that was wanted last can be added up now."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted: Sequence[RowTable] = ()
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._step)

    def want(self, row_tables: Sequence[RowTable]) -> bool:
        """Whether these can be added up now; if not, `ready` is emitted when they can."""
        self._wanted = [outline for outline in row_tables if len(outline.rows) > AT_ONCE and not outline.is_ready]
        if self._wanted:
            self._timer.start()
        else:
            self._timer.stop()
        return not self._wanted

    def _step(self) -> None:
        if any(outline.step() for outline in self._wanted):
            self._timer.start()
        else:
            self._wanted = ()
            self.ready.emit()


def selection_facts(state: State, targets: tuple[str, ...]) -> tuple[Fact, ...]:
    """Placement of the selected objects: of one tensor everything, of a model or several objects the sums."""
    chosen = places_of(state, targets)
    count = sum(len(places) for _, places in chosen.values())
    if count == 0:
        return ()
    if count == 1:
        ((name, (outline, (index,))),) = chosen.items()
        own = outline.rows[index]
        about = _origin(state.objects[name]) if index == 0 else []
        if own.kind != "module":
            return (*_tensor_facts(own), *about)
    else:
        about = [Fact("selected", count_text(count, "object"))]
    held = [HeldTensors(outline, outline.tensors(places)) for outline, places in chosen.values()]
    totals = Totals.of(held)
    facts = [*about, *_parameters(held)]
    for kind, word in (
        ("buffer", "buffers"),
        ("gradient", "gradients"),
        ("state", "optimizer state"),
        ("tensor", "tensors"),
    ):
        if kind in totals.kinds:
            facts.append(Fact(word, f"{totals.kinds[kind].tensors:,}, {bytes_text(totals.kinds[kind].bytes)}"))
    facts += _per_device(totals)
    if totals.dtypes:
        facts.append(Fact("dtype", ", ".join(totals.dtypes)))
    for word, number in _out_of_the_ordinary(chosen).items():
        if number:
            facts.append(Fact(word, f"{number:,}"))
    if count == 1 and index == 0 and state.objects[name].training is not None:
        facts.append(Fact("mode", "training" if state.objects[name].training else "evaluation"))
    return tuple(facts)


def _origin(snapshot: ObjectSnapshot) -> list[Fact]:
    """What is known about an object besides its tensors."""
    return _known(
        {
            "made from": snapshot.source,
            "changed since": ", ".join(map(os.path.basename, snapshot.outdated)) or None,
            "optimizer": snapshot.optimizer,
            "hops": "its parts fetch what they are given to their own devices" if snapshot.hops else None,
            "dispatched": snapshot.dispatched,
            "values": snapshot.values,
        }
    )


def _known(texts: dict[str, str | None]) -> list[Fact]:
    return [Fact(label, text) for label, text in texts.items() if text is not None]


def _parameters(held: list[HeldTensors]) -> list[Fact]:
    tensors = elements = trainable = waiting = 0
    for outline, places in held:
        these = places[outline.kinds("parameter")[places]]
        traits = outline.column("traits")
        sizes = outline.elements[these]
        tensors += len(these)
        elements += int(sizes.sum())
        trainable += int(sizes[traits.where(lambda found: bool(found[0]))[these]].sum())
        waiting += int(traits.where(lambda found: not found[2])[these].sum())
    if not tensors:
        return []
    if waiting:  # a lazy model has no number of parameters before its first forward
        words = "none with a shape yet" if waiting == tensors else f"{waiting:,} without a shape yet"
        return [Fact("parameters", f"{count_text(tensors, 'tensor')}, {words}")]
    return [
        Fact("parameters", f"{elements:,} in {count_text(tensors, 'tensor')}"),
        Fact("trainable", "all" if trainable == elements else f"{trainable:,}"),
    ]


def _per_device(totals: Totals) -> list[Fact]:
    """Bytes and number of tensors on each device; "all" where there is only one."""
    if len(totals.devices) == 1:
        return [Fact(f"on {device}", f"{bytes_text(result.bytes)}, all") for device, result in totals.devices.items()]
    return [
        Fact(f"on {device}", f"{bytes_text(result.bytes)}, {count_text(result.tensors, 'tensor')}")
        for device, result in totals.devices.items()
    ]


def _out_of_the_ordinary(chosen: dict[str, tuple[RowTable, list[int]]]) -> dict[str, int]:
    """How many tensors are tied, not registered, uninitialised."""
    result = dict.fromkeys(("tied", "not registered", "uninitialised"), 0)
    for outline, places in chosen.values():
        inside, traits = outline.inside(places) & ~outline.kinds("module"), outline.column("traits")
        result["tied"] += int((inside & (outline.originals != np.arange(len(inside)))).sum())
        result["not registered"] += int((inside & traits.where(lambda row: not row[1])).sum())
        result["uninitialised"] += int((inside & traits.where(lambda row: not row[2])).sum())
    return result


def _tensor_facts(row: Row) -> list[Fact]:
    return _known(
        {
            "shape": f"{shape_text(row.shape)}, {count_text(row.elements, 'element')}"
            if row.initialised
            else "not known before the first forward",
            "dtype": row.dtype,
            "on": ", ".join(row.devices),
            "bytes": f"{bytes_text(row.bytes)} ({row.bytes:,})",
            "requires grad": {True: "yes", False: "no", None: None}[row.requires_grad],
            "leaf": {True: "yes", False: "no: it is the result of an operation", None: None}[row.is_leaf],
            "grad_fn": row.grad_fn,
            "tied to": row.tied_to,
            "registered": None if row.registered else "no: .to(), parameters() and state_dict() do not see it",
            "storage": None if row.storage is None else f"0x{row.storage:x}",
            "id()": None if row.identity is None else str(row.identity),
        }
    )


MOST_OBJECTS = 5
_READINGS = {
    "Activity": ("utilization", "throttled by"),
    "Power and heat": ("power", "temperature"),
    "Clocks": ("SM", "memory"),
}
"""Rows of the Device tab that are said here too, by group."""


def device_facts(state: State, name: str) -> tuple[Fact, ...]:
    """The device of this id, which the state has."""
    device = state.devices[name]
    info = device.info
    result = [Fact("device", info.name)]
    if info.kind == "virtual":
        _, _, number = name.partition(":")
        result.append(Fact("stands for", f"cuda:{number}, where the doctor checks code that asks for CUDA"))
        result.append(Fact("simulated", "values are real, memory is counted, time is modelled"))
    elif info.nvml_index is not None:
        result.append(Fact("nvidia-smi", f"GPU {info.nvml_index}"))
    if info.parent is not None:
        result.append(Fact("MIG instance of", info.parent))
    if not info.usable:
        result.append(Fact("not usable", info.reason or "this torch cannot use it"))
    result += [Fact("problem", item.reason) for item in state.problems if item.device == name and item.field is None]
    result += [Fact("alert", trouble.words) for trouble in state.troubles() if trouble.device == name]
    return (*result, *_memory(state, device), *_readings(state, device))


def _memory(state: State, device: Device) -> list[Fact]:
    if device.total_bytes is None:
        return []
    shared = ", the system's" if device.info.memory_shared else ""
    result = [Fact("memory", f"{bytes_text(device.used_bytes)} of {bytes_text(device.total_bytes)}{shared}")]
    parts: list[tuple[int, str]] = []
    for part in segments(device.parts):
        if part.key == "workspace":
            parts += _objects(state, device.info.id, part.bytes)
        elif part.key not in ("used", "driver", "free"):
            parts.append((part.bytes, PART_TEXTS[part.key].title))
    if parts:
        largest_first = sorted(parts, reverse=True)
        result.append(Fact("used by", ", ".join(f"{bytes_text(size)} {what}" for size, what in largest_first)))
    return result


def _objects(state: State, device: str, held: int) -> list[tuple[int, str]]:
    """What named objects hold there; all in one where they share memory."""
    sizes = ((item.bytes_by_device.get(device, 0), f"{item.kind} {item.name}") for item in state.objects.values())
    largest = [(size, what) for size, what in sorted(sizes, reverse=True)[:MOST_OBJECTS] if size]
    rest = held - sum(size for size, _ in largest)
    if rest < 0:
        return [(held, PART_TEXTS["workspace"].title)]
    return [*largest, (rest, "other objects and optimizer state")] if rest else largest


def _readings(state: State, device: Device) -> list[Fact]:
    mark = " (simulated)" if device.info.simulated else ""
    result = []
    for group in facts(device.info, device.sample, device.details, state.problems):
        for row in group.rows:
            is_said = row.label in _READINGS.get(group.title, ()) and row.value != MISSING
            if is_said and (row.warning or row.label != "throttled by"):  # an idle card is held back by nothing
                label = f"{row.label} clock" if group.title == "Clocks" else row.label
                result.append(Fact(label, f"{row.value}{mark}"))
    return result
