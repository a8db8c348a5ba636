"""The dialog that chooses virtual GPUs: profiles with their figures, and the line that asks for them. Main thread.

The line is what counts: choosing a profile writes it, and it can be edited. It is the same line that `--virtual` takes.
"""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import (
    QListWidget,
    QListWidgetItem,
    QSpinBox,
    QWidget,
)

from devexplorer.core.base import BadInput, bytes_text, count_text
from devexplorer.core.devices.profiles import MAX_DEVICES, Profile, load_profiles, parse_virtual
from devexplorer.core.records import AddVirtual, Fact
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import FactsTable, give_room, hbox, label, line_edit, push_button, vbox

FIRST = "Tesla T4"
"""The card that is chosen at first: two of them are what the tutorials use."""
INTRO = (
    "A virtual GPU has the memory, speed and behaviour of a real card: values are real, memory is counted, time is "
    "modelled. Everything it shows is marked as simulated."
)
WIDTH_PX, HEIGHT_PX = 680, 560
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
        super().__init__("Virtual GPUs", "Add", WIDTH_PX, parent)
        self.resize(WIDTH_PX, HEIGHT_PX)
        self.set_words(INTRO)
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
        self.line.setText(", ".join(filter(None, (self.line.text().strip().rstrip(","), self._piece()))))

    def command(self) -> AddVirtual:
        """See `FormDialog`."""
        return AddVirtual(spec=self.line.text().strip())
