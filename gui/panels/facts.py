"""Two columns of facts, and the facts that the window itself knows about a selection. Main thread."""

from __future__ import annotations

from collections import Counter

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QSizePolicy, QWidget

from devexplorer.core.formats import bytes_text, count_text, shape_text
from devexplorer.core.records.messages import Fact
from devexplorer.core.records.objects import Row
from devexplorer.core.state import State
from devexplorer.gui.item_models.dragging import rows_of, tensors_of
from devexplorer.gui.panels.panel import label


class FactsTable(QWidget):
    """Labels dimmed at the left, values at the right; values can be selected and copied."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(4)
        self._grid.setColumnStretch(1, 1)
        self._cells: list[tuple[QLabel, QLabel]] = []
        self._facts: tuple[Fact, ...] = ()

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What is on show."""
        return self._facts

    @property
    def label_width(self) -> int:
        """Pixels that the longest label takes."""
        return max((name.sizeHint().width() for name, _ in self._cells[: len(self._facts)]), default=0)

    def set_label_width(self, pixels: int) -> None:
        """Let the values begin behind so many pixels: two tables below each other then have one edge."""
        self._grid.setColumnMinimumWidth(0, pixels)

    def set_facts(self, facts: tuple[Fact, ...]) -> None:
        """Show `facts`; labels are kept and get new texts."""
        if facts == self._facts:
            return
        self._facts = facts
        while len(self._cells) < len(facts):
            name, value = label(words="dim"), label(wrap=True)
            name.setAlignment(Qt.AlignmentFlag.AlignTop)
            value.setAlignment(Qt.AlignmentFlag.AlignTop)
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            value.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
            self._grid.addWidget(name, len(self._cells), 0)
            self._grid.addWidget(value, len(self._cells), 1)
            self._cells.append((name, value))
        for at, (name, value) in enumerate(self._cells):
            name.setVisible(at < len(facts))
            value.setVisible(at < len(facts))
            if at < len(facts):
                name.setText(facts[at].label)
                value.setText(facts[at].value)
        self.setVisible(bool(facts))


def selection_facts(state: State, targets: tuple[str, ...]) -> tuple[Fact, ...]:
    """Placement of the selected objects: of one tensor everything, of a model or several objects the sums."""
    present = tuple(target for target in targets if rows_of(state, target))
    if not present:
        return ()
    own = rows_of(state, present[0])[0]
    if len(present) == 1 and own.kind != "module":
        return _tensor_facts(own)
    rows = list(tensors_of(state, present))
    facts = [] if len(present) == 1 else [Fact("selected", count_text(len(present), "object"))]
    parameters = [row for row in rows if row.kind == "parameter"]
    elements = sum(row.elements for row in parameters)
    if parameters and all(row.initialised for row in parameters):
        trainable = sum(row.elements for row in parameters if row.requires_grad)
        facts.append(Fact("parameters", f"{elements:,} in {count_text(len(parameters), 'tensor')}"))
        facts.append(Fact("trainable", "all" if trainable == elements else f"{trainable:,}"))
    elif parameters:  # a lazy model has no number of parameters before its first forward
        facts.append(Fact("parameters", f"{count_text(len(parameters), 'tensor')}, {_waiting(parameters)}"))
    for kind, word in (("buffer", "buffers"), ("gradient", "gradients"), ("tensor", "tensors")):
        some = [row for row in rows if row.kind == kind]
        if some:
            facts.append(Fact(word, f"{len(some):,}, {bytes_text(sum(row.bytes for row in some))}"))
    facts += _per_device(rows)
    below = [row for target in present for row in rows_of(state, target)]
    for word, count in (
        ("tied", sum(row.tied_to is not None for row in below)),
        ("not registered", sum(not row.registered for row in below)),
        ("uninitialised", sum(not row.initialised for row in below)),
    ):
        if count:
            facts.append(Fact(word, f"{count:,}"))
    if len(present) == 1 and not own.depth:
        training = state.objects[present[0]].training
        if training is not None:
            facts.append(Fact("mode", "training" if training else "evaluation"))
    return tuple(facts)


def _waiting(parameters: list[Row]) -> str:
    count = sum(not row.initialised for row in parameters)
    return "none with a shape yet" if count == len(parameters) else f"{count:,} without a shape yet"


def _per_device(rows: list[Row]) -> list[Fact]:
    """Bytes and number of tensors on each device; "all" where there is only one."""
    held: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for row in rows:
        for device in row.devices:
            held[device] += row.bytes
            number[device] += 1
    if len(held) == 1:
        (device,) = held
        return [Fact(f"on {device}", f"{bytes_text(held[device])}, all")]
    return [Fact(f"on {device}", f"{bytes_text(held[device])}, {count_text(number[device], 'tensor')}") for device in sorted(held)]


def _tensor_facts(row: Row) -> tuple[Fact, ...]:
    shape = "not known before the first forward" if not row.initialised else shape_text(row.shape)
    facts = [Fact("shape", shape), Fact("elements", f"{row.elements:,}")]
    if row.dtype is not None:
        facts.append(Fact("dtype", row.dtype))
    facts += [Fact("on", ", ".join(row.devices)), Fact("bytes", f"{bytes_text(row.bytes)} ({row.bytes:,})")]
    if row.requires_grad is not None:
        facts.append(Fact("requires grad", "yes" if row.requires_grad else "no"))
    if row.is_leaf is not None:
        facts.append(Fact("leaf", "yes" if row.is_leaf else "no: it is the result of an operation"))
    if row.grad_fn is not None:
        facts.append(Fact("grad_fn", row.grad_fn))
    if row.tied_to is not None:
        facts.append(Fact("tied to", row.tied_to))
    if not row.registered:
        facts.append(Fact("registered", "no: .to(), parameters() and state_dict() do not see it"))
    if row.storage is not None:
        facts.append(Fact("storage", f"0x{row.storage:x}"))
    if row.identity is not None:
        facts.append(Fact("id()", f"{row.identity:,}".replace(",", "")))
    return tuple(facts)
