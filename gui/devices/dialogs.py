"""The dialogs that choose devices: virtual GPUs, by profiles with their figures, and which cards the engine sees, with
the CUDA_VISIBLE_DEVICES that comes of it. Main thread.

The line is what counts: choosing a profile writes it, and it can be edited. It is the same line that `--virtual` takes.

The line is what counts: checking and moving cards writes it, and it can be edited. What it will do is said below it
before it is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHeaderView,
    QListWidget,
    QListWidgetItem,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from devexplorer.core.base import MISSING, BadInput, bytes_text, count_text, joined, sentence
from devexplorer.core.devices.cuda_visible_devices import (
    VARIABLE,
    card_number,
    cards_in_order,
    cards_to_choose,
    checked,
    is_number_list,
    selected_cards,
    value_text,
    visibility_note,
)
from devexplorer.core.devices.profiles import MAX_DEVICES, Profile, load_profiles, parse_virtual
from devexplorer.core.records import AddVirtual, DeviceInfo, Fact
from devexplorer.core.session import State
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import (
    RIGHT,
    ElidedLabel,
    FactsTable,
    Padded,
    Role,
    font,
    hbox,
    label,
    line_edit,
    push_button,
    spin_box,
    vbox,
)

FIRST = "Tesla T4"
"""The card that is chosen at first: two of them are what the tutorials use."""
VIRTUAL_INTRO = (
    "A virtual GPU has the memory, speed and behaviour of a real card: values are real, memory is counted, time is "
    "modelled. Everything it shows is marked as simulated."
)
VIRTUAL_WIDTH_PX, VIRTUAL_HEIGHT_PX = 680, 560
_RATE_COLUMNS = {
    "float32": "fp32",
    "tf32": "tf32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "int8": "int8",
}
"""dtype -> the column of the datasheet that it comes from."""


def profile_facts(profile: Profile) -> tuple[Fact, ...]:
    """The figures of a card; those that no source confirms, or that were derived, say so."""

    def marked(text: str, column: str) -> str:
        if column in profile.unverified:
            return f"{text} (unverified)"
        return f"{text} (computed)" if column in profile.computed else text

    facts = [
        Fact("memory", marked(bytes_text(profile.memory_bytes, 1), "memory_mib")),
        Fact("compute capability", marked(profile.compute_capability, "compute_capability")),
        Fact("multiprocessors", marked(str(profile.sm_count), "sm_count")),
        Fact("memory bandwidth", marked(f"{profile.memory_gb_s:g} GB/s", "memory_gb_s")),
    ]
    for dtype, column in _RATE_COLUMNS.items():
        if dtype in profile.tflops:
            unit = "TOP/s" if dtype == "int8" else "TFLOP/s"
            facts.append(Fact(dtype, marked(f"{profile.tflops[dtype]:g} {unit}", column)))
        else:
            facts.append(Fact(dtype, "not supported by this chip"))
    facts.append(Fact("to the host", marked(f"{profile.host_gb_s:g} GB/s", "host_gb_s")))
    facts.append(Fact("to another card", marked(f"{profile.link_gb_s:g} GB/s, {profile.link}", "link_gb_s")))
    if profile.tdp_w is not None:
        facts.append(Fact("power limit", marked(f"{profile.tdp_w:g} W", "tdp_w")))
    return tuple(facts)


class VirtualGpusDialog(FormDialog):
    """Search, choose, add."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Virtual GPUs", "Add", VIRTUAL_WIDTH_PX, parent)
        self.resize(VIRTUAL_WIDTH_PX, VIRTUAL_HEIGHT_PX)
        self.set_words(VIRTUAL_INTRO)
        self._profiles = load_profiles()
        self.search = line_edit(placeholder="search: T4, RTX, H100", name="search profiles", clear=True)
        self.list = QListWidget()
        self.list.setObjectName("boxed")
        self.list.setAccessibleName("profiles")
        for name, profile in self._profiles.items():
            item = QListWidgetItem(f"{name}  ·  {profile.memory_bytes / (1 << 30):.0f} GiB")
            item.setData(Qt.ItemDataRole.UserRole, name)
            item.setSizeHint(QSize(0, 24))  # Qt asks before the stylesheet is known
            self.list.addItem(item)
        self.facts = FactsTable()
        self.count = spin_box(1, MAX_DEVICES, 2, name="how many")
        self.line = line_edit(name="virtual GPUs to add")
        self.more_button = push_button(
            "Add to list", self._on_more, tip="Append these to the list, to combine different cards"
        )
        self.more_button.setAutoDefault(False)
        left = vbox(self.search, (self.list, 1))
        how_many = hbox(label("how many", words="dim"), self.count, self.more_button, None)
        right = vbox(self.facts, None, how_many)
        self.add_part(hbox((left, 1), (right, 1), spacing=16), 1)
        self.add_part(self.line)
        self.search.textChanged.connect(self._on_search)
        self.list.currentItemChanged.connect(lambda *_items: self._on_chosen())
        self.count.valueChanged.connect(self._on_chosen)
        self.line.textChanged.connect(self.refresh)
        self.list.setCurrentRow(list(self._profiles).index(FIRST) if FIRST in self._profiles else 0)

    @property
    def profile(self) -> Profile | None:
        """The profile that is chosen in the list."""
        item = self.list.currentItem()
        return None if item is None else self._profiles[item.data(Qt.ItemDataRole.UserRole)]

    def refresh(self) -> None:
        """Say what the line comes to, or what is wrong with it."""
        try:
            chosen = parse_virtual(self.line.text())
        except BadInput as problem:
            self.say(". ".join(finding[:1].upper() + finding[1:] for finding in problem.findings), wrong=True)
        else:
            memory = bytes_text(sum(profile.memory_bytes for profile in chosen), 1)
            self.say(f"{count_text(len(chosen), 'virtual GPU')}, {memory} of counted memory")

    def _on_search(self, text: str) -> None:
        """Show the profiles that hold every word; the first of them is chosen when the chosen one is gone."""
        words = text.lower().split()
        first = None
        for index in range(self.list.count()):
            item = self.list.item(index)
            hidden = not all(word in item.text().lower() for word in words)
            item.setHidden(hidden)
            first = item if first is None and not hidden else first
        current = self.list.currentItem()
        if first is not None and (current is None or current.isHidden()):
            self.list.setCurrentItem(first)

    def _piece(self) -> str:
        profile = self.profile
        return "" if profile is None else f"{self.count.value()}x {profile.name}"

    def _on_chosen(self) -> None:
        profile = self.profile
        if profile is not None:
            self.facts.set_facts(profile_facts(profile))
            self.line.setText(self._piece())
        self.refresh()

    def _on_more(self) -> None:
        self.line.setText(joined(", ", self.line.text().strip().rstrip(","), self._piece()))

    def command(self) -> AddVirtual:
        """See `FormDialog`."""
        return AddVirtual(spec=self.line.text().strip())


INTRO = (
    "The engine sees only the checked cards and numbers them from 0 in this order. CUDA reads "
    "the variable once per process, so the engine restarts and rebuilds the workspace; objects "
    "from a hidden card are listed."
)
ORDER = (
    "Numbers follow CUDA's order: the fastest card first, unless CUDA_DEVICE_ORDER=PCI_BUS_ID is "
    "set. nvidia-smi always counts by bus. A UUID names the same card in both. Each process can "
    "use one MIG instance, named by its UUID."
)
UUIDS, NUMBERS = "UUIDs (recommended)", "numbers"
_COLUMNS = ("card", "in the engine", "nvidia-smi", "memory", "UUID")
_WIDTHS = (300, 104, 84, 92)
_ROW_PX = 26
WIDTH_PX, HEIGHT_PX = 980, 540


class VisibleDevicesDialog(FormDialog):
    """Check, order, restart. `chosen` carries the line."""

    chosen = Signal(object)
    """The list as it goes into the environment (str; empty: no card), or None: as the engine inherits it."""

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__("Visible devices", "Restart engine", WIDTH_PX, parent)
        self.resize(WIDTH_PX, HEIGHT_PX)
        self.set_words(INTRO)
        self._state = state
        self._cards = cards_to_choose([device.info for device in state.devices.values()])
        self._writing = False
        self.now = ElidedLabel(Role.CODE)
        self.tree = _CardsTree()
        self.up_button = push_button("Up", lambda: self._shift(-1))
        self.down_button = push_button("Down", lambda: self._shift(1))
        for button in (self.up_button, self.down_button):
            button.setAutoDefault(False)
        self.notation = QComboBox()
        self.notation.addItems([UUIDS, NUMBERS])
        self.notation.setAccessibleName("write the list as")
        self.line = line_edit(name=VARIABLE, placeholder="empty: no card is visible")
        self.inherit_button = push_button(
            "As inherited",
            lambda: self._choose(None),
            tip=f"Start the engine with the {VARIABLE} that this window was started with, or without one",
        )
        self._lay_out()
        self._fill()
        self.tree.itemChanged.connect(lambda *_what: self._write())
        self.tree.currentItemChanged.connect(lambda *_items: self._show_moves())
        self.notation.currentIndexChanged.connect(self._write)
        self.line.textChanged.connect(self._on_text)
        self._begin()

    def _lay_out(self) -> None:
        self.line.setFont(font(Role.CODE))
        self.add_row("the running engine has", self.now)
        self.add_part(self.tree, 1)
        written_as = label("write the list as", words="dim")
        self.add_part(hbox(self.up_button, self.down_button, None, written_as, self.notation))
        self.add_part(label(ORDER, Role.LABEL, "dim", wrap=True))
        self.add_part(hbox(label(f"{VARIABLE}=", Role.CODE), (self.line, 1)))
        self.add_button(self.inherit_button)

    def _fill(self) -> None:
        """The cards: those that the engine sees first, in its order."""
        visible = sorted((info for info in self._cards if info.usable), key=lambda info: _ordinal(info) or 0)
        hidden = [info for info in self._cards if not info.usable]
        simulated = bool(self._cards) and self._cards[0].simulated
        self.tree.set_cards([*visible, *hidden], "number" if simulated else "nvidia-smi")

    def _begin(self) -> None:
        """Start from what the running engine has."""
        engine = self._state.engine
        running = engine.cuda_visible_devices if engine is not None else None
        self.now.set_full_text(value_text(running) if engine is not None else "the engine is not ready yet")
        if running is not None:
            self._writing = True
            self.notation.setCurrentText(NUMBERS if running and is_number_list(running) else UUIDS)
            self._writing = False
            self.line.setText(running)
        else:
            self._write()
        self._show_moves()
        self.refresh()

    @property
    def value(self) -> str:
        """The list that the line asks for; raises `BadInput`."""
        return checked(self.line.text())

    def refresh(self) -> None:
        """Say what the line comes to, or what is wrong with it."""
        try:
            value = self.value
        except BadInput as problem:
            self.say(sentence(str(problem)), wrong=True)
            return
        note = visibility_note(value, self._cards)
        self.say(joined(" ", note, self._preview(value)), warning=note is not None)

    def _preview(self, value: str) -> str:
        """Which card will have which number."""
        if not self._cards:
            return "There is no card to choose. Virtual GPUs follow the variable too: add some first."
        result = selected_cards(value, self._cards)
        if not result:
            return "No card will be visible: torch will have the CPU only."
        kind = "vgpu" if result[0].simulated else "cuda"
        words = ", ".join(f"{kind}:{index} is {_short(info)}" for index, info in enumerate(result[:8]))
        more = f", and {len(result) - 8} more" if len(result) > 8 else ""
        uncertain = next((problem.reason for problem in self._state.problems if problem.field == "cuda_ordinal"), None)
        if uncertain is not None and is_number_list(value):
            return f"{len(result)} of the cards. Which ones is not sure: {sentence(uncertain)}"
        return f"{words}{more}."

    def _on_text(self) -> None:
        """The line was edited: the checks follow it."""
        if not self._writing:
            try:
                wanted = {info.id for info in selected_cards(self.value, self._cards)}
            except BadInput:
                wanted = None
            if wanted is not None:
                self._writing = True
                self.tree.check(wanted)
                self._writing = False
        self.refresh()

    def _write(self) -> None:
        """The checks, the order or the form were changed: the line follows them."""
        if self._writing:
            return
        self._writing = True
        by_number = self.notation.currentText() == NUMBERS
        numbers = {info.id: str(index) for index, info in enumerate(cards_in_order(self._cards))} if by_number else {}
        entries = [numbers.get(info.id) or info.uuid or str(card_number(info)) for info in self.tree.checked_cards()]
        self.line.setText(",".join(entries))
        self.line.setCursorPosition(0)
        self._writing = False
        self.refresh()

    def _shift(self, by: int) -> None:
        self.tree.shift(by)
        self._show_moves()
        self._write()

    def _show_moves(self) -> None:
        index, count = self.tree.current_row, self.tree.topLevelItemCount()
        self.up_button.setEnabled(index > 0)
        self.down_button.setEnabled(0 <= index < count - 1)

    def _accept(self) -> None:
        self._choose(self.value)

    def _choose(self, value: str | None) -> None:
        self.chosen.emit(value)
        self.accept()


class _CardsTree(QTreeWidget):
    """One row per card, with a check."""

    def __init__(self) -> None:
        super().__init__(columnCount=len(_COLUMNS))
        self.setAccessibleName("cards")
        self.setRootIsDecorated(False)
        self.setUniformRowHeights(True)
        self.setAllColumnsShowFocus(True)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setItemDelegate(Padded(self))
        self.setMinimumHeight(4 * _ROW_PX)
        header = self.header()
        header.setFont(font(Role.LABEL))
        header.setSectionsMovable(False)
        header.setStretchLastSection(True)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        for column, width in enumerate(_WIDTHS):
            self.setColumnWidth(column, width)

    def set_cards(self, cards: Sequence[DeviceInfo], number_title: str) -> None:
        """Show these cards, from the top."""
        self.clear()
        self.setHeaderLabels([number_title if title == "nvidia-smi" else title for title in _COLUMNS])
        for column in (2, 3):
            self.headerItem().setTextAlignment(column, RIGHT)
        self.addTopLevelItems([_item(info) for info in cards])
        self.setCurrentIndex(self.model().index(0, 0))

    def _items(self) -> list[QTreeWidgetItem]:
        items = map(self.topLevelItem, range(self.topLevelItemCount()))
        return [item for item in items if item is not None]

    def checked_cards(self) -> list[DeviceInfo]:
        """The checked ones, from the top."""
        return [_card(item) for item in self._items() if item.checkState(0) == Qt.CheckState.Checked]

    def check(self, ids: set[str]) -> None:
        """Check exactly these."""
        for item in self._items():
            item.setCheckState(0, Qt.CheckState.Checked if _card(item).id in ids else Qt.CheckState.Unchecked)

    @property
    def current_row(self) -> int:
        """Where the chosen row is; -1 for none."""
        item = self.currentItem()
        return -1 if item is None else self.indexOfTopLevelItem(item)

    def shift(self, by: int) -> None:
        """Move the chosen row up or down."""
        index = self.current_row
        if index >= 0 and 0 <= index + by < self.topLevelItemCount():
            item = self._items()[index]
            self.takeTopLevelItem(index)
            self.insertTopLevelItem(index + by, item)
            self.setCurrentItem(item)


def _card(item: QTreeWidgetItem) -> DeviceInfo:
    info = item.data(0, Qt.ItemDataRole.UserRole)
    assert isinstance(info, DeviceInfo)
    return info


def _item(info: DeviceInfo) -> QTreeWidgetItem:
    number = card_number(info)
    prefix = "MIG " if info.parent is not None and "MIG" not in info.name else ""
    name = f"{prefix}{info.name}{'  simulated' if info.simulated else ''}"
    engine = info.id if info.usable else "not visible"
    item = QTreeWidgetItem(
        [
            name,
            engine,
            MISSING if number is None else str(number),
            bytes_text(info.memory_total_bytes, 1),
            info.uuid or MISSING,
        ]
    )
    item.setData(0, Qt.ItemDataRole.UserRole, info)
    item.setCheckState(0, Qt.CheckState.Checked if info.usable else Qt.CheckState.Unchecked)
    item.setSizeHint(0, QSize(0, _ROW_PX))
    for column in (2, 3):
        item.setTextAlignment(column, RIGHT)
    reason = "" if info.usable else info.reason
    for column in range(len(_COLUMNS)):
        item.setToolTip(column, reason or item.text(column))
    return item


def _ordinal(info: DeviceInfo) -> int | None:
    """What torch counts in the running engine."""
    number = info.id.rpartition(":")[2]
    return int(number) if info.usable and number.isdigit() else None


def _short(info: DeviceInfo) -> str:
    number = card_number(info)
    where = f"card {number}" if info.simulated else f"nvidia-smi {number}"
    return f"{info.name} ({info.uuid if info.parent is not None else where})"
