"""The dialog that chooses virtual GPUs: profiles with their figures, and the line that asks for them. Main thread.

The line is what counts: choosing a profile writes it, and it can be edited. It is the same line that `--virtual` takes.
"""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QDialog,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QSpinBox,
    QWidget,
)

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.formats import bytes_text, count_text
from devexplorer.core.devices.profiles import MAX_DEVICES, Profile, load_profiles, parse_virtual
from devexplorer.core.records.messages import Fact
from devexplorer.gui.widgets.facts import FactsTable
from devexplorer.gui.widgets.icons import pixmap
from devexplorer.gui.widgets.layouts import hbox, line_edit, push_button, vbox
from devexplorer.gui.widgets.panel import EDGE_PX, give_room, label
from devexplorer.gui.widgets.plain_text import tip
from devexplorer.gui.widgets.theme import Role, theme_of

FIRST = "Tesla T4"
"""The card that is chosen at first: two of them are what the tutorials use."""
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


class VirtualGpusDialog(QDialog):
    """Search, choose, add. `requested` carries the line."""

    requested = Signal(str)
    """`[Nx ]PROFILE[, ...]`"""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Virtual GPUs")
        self.resize(680, 560)
        self._profiles = load_profiles()
        self.search = line_edit(placeholder="search: T4, RTX, H100", name="search profiles", clear=True)
        self.list = QListWidget()
        self.list.setObjectName("boxed")
        self.list.setAccessibleName("profiles")
        for name, profile in self._profiles.items():
            item = QListWidgetItem(f"{name}  ·  {profile.memory_bytes / (1 << 30):.0f} GiB")
            item.setData(Qt.ItemDataRole.UserRole, name)
            item.setSizeHint(QSize(0, 24))  # asked before the stylesheet is known, so it is said
            self.list.addItem(item)
        self.title = label(role=Role.STRONG)
        self.facts = FactsTable()
        self.count = QSpinBox()
        self.count.setRange(1, MAX_DEVICES)
        self.count.setValue(2)
        self.count.setAccessibleName("how many")
        give_room(self.count)
        self.line = line_edit(name="virtual GPUs to add")
        self.more_button = push_button(
            "Add to list", self._on_more, tip="Append these to the list, to combine different cards"
        )
        self.more_button.setAutoDefault(False)
        self.message = label(wrap=True)
        self._sign = QLabel()
        self._sign.setFixedSize(16, 16)
        self._sign.setPixmap(pixmap("error", theme_of(self.palette()).error, 16, 2.0))
        self.add_button = push_button("Add", self._on_add, look="primary")
        self.add_button.setDefault(True)
        self._lay_out()
        self.search.textChanged.connect(self._on_search)
        self.list.currentItemChanged.connect(lambda *_items: self._on_chosen())
        self.count.valueChanged.connect(self._on_chosen)
        self.line.textChanged.connect(self.refresh)
        self.list.setCurrentRow(list(self._profiles).index(FIRST) if FIRST in self._profiles else 0)

    def _lay_out(self) -> None:
        intro = label(
            "A virtual GPU has the memory, speed and behaviour of a real card: values are real, memory is counted, "
            "time is modelled. Everything it shows is marked as simulated.",
            words="soft",
            wrap=True,
        )
        left = vbox(self.search, (self.list, 1))
        how_many = hbox(label("how many", words="dim"), self.count, self.more_button, None)
        right = vbox(self.title, self.facts, None, how_many)
        note = hbox(self._sign, (self.message, 1))
        note.setAlignment(self._sign, Qt.AlignmentFlag.AlignTop)
        cancel = push_button("Cancel", self.reject)
        cancel.setAutoDefault(False)
        vbox(
            intro,
            (hbox((left, 1), (right, 1), spacing=16), 1),
            self.line,
            note,
            hbox(None, cancel, self.add_button),
            spacing=EDGE_PX,
            margins=16,
            parent=self,
        )

    @property
    def profile(self) -> Profile | None:
        """The profile that is chosen in the list."""
        item = self.list.currentItem()
        return None if item is None else self._profiles[item.data(Qt.ItemDataRole.UserRole)]

    def refresh(self) -> None:
        """Say what the line comes to, or what is wrong with it."""
        try:
            chosen = parse_virtual(self.line.text())
            words, look = f"{count_text(len(chosen), 'virtual GPU')}, {_memory_words(chosen)}", "dim"
        except BadInput as problem:
            words, look = ". ".join(finding[:1].upper() + finding[1:] for finding in problem.findings), "error"
        self.message.setText(words)
        self._sign.setVisible(look == "error")
        self.add_button.setEnabled(look != "error")
        self.add_button.setToolTip(tip(words) if look == "error" else "")
        if self.message.property("words") != look:
            self.message.setProperty("words", look)
            self.message.style().polish(self.message)

    def _on_search(self, text: str) -> None:
        """Show the profiles that hold every word; the first of them is chosen when the chosen one is gone."""
        words = text.lower().split()
        first = None
        for at in range(self.list.count()):
            item = self.list.item(at)
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
            self.title.setText(profile.name)
            self.facts.set_facts(profile_facts(profile))
            self.line.setText(self._piece())
        self.refresh()

    def _on_more(self) -> None:
        self.line.setText(", ".join(filter(None, (self.line.text().strip().rstrip(","), self._piece()))))

    def _on_add(self) -> None:
        self.requested.emit(self.line.text().strip())
        self.accept()


def _memory_words(profiles: list[Profile]) -> str:
    return f"{bytes_text(sum(profile.memory_bytes for profile in profiles), 1)} of counted memory"
