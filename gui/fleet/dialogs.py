"""The dialogs of the page Fleet: which fleet is simulated, which cluster is attached, what a check measures. Main
thread only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDoubleSpinBox, QWidget

from devexplorer.core.base import BadInput, Findings, count_text, parse_dtype, sentence
from devexplorer.core.devices.profiles import load_profiles, parse_virtual
from devexplorer.core.fleet.check.plan import KINDS, CheckPlan
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.simulated import MOST_NODES, SimulatedFleet, parse_defect
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import Choice, MenuEdit, check_box, hbox, holder, line_edit, spin_box, vbox

WIDTH_PX, FIELD_PX = 560, 400
SIMULATED = (
    "Machines that exist only here, with the speed, memory and power of real cards, declared noise and the defects that"
    " you choose. Everything of them is marked as simulated."
)
CLUSTER = (
    "The nodes of a running Ray cluster. DevExplorer attaches to it from a separate process and reserves nothing"
    " until a check measures its cards."
)
FIRST_CARDS, FIRST_DEFECT = "8x NVIDIA H100 80GB HBM3", "slow:3/5:10%"
KIND_WORDS = {
    MeasuredKind.MATMUL: ("Products", "Matrix products, of each dtype"),
    MeasuredKind.MEMORY: ("Memory", "Copies within the memory of each card"),
    MeasuredKind.COPIES: ("Host copies", "To and from the host"),
    MeasuredKind.PEER: ("Peer copies", "Between the cards of a machine"),
    MeasuredKind.ALLREDUCE: ("All-reduce", "Between the cards of a machine, and between machines"),
}


class SimulatedFleetDialog(FormDialog):
    """`chosen` has the fleet."""

    chosen = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Simulated fleet", "Simulate", WIDTH_PX, parent)
        self.set_words(SIMULATED)
        self.nodes = spin_box(1, MOST_NODES, 16)
        profiles = [(name, f"8x {name}") for name in load_profiles()]
        self.cards = MenuEdit(FIRST_CARDS, "cards of each machine", profiles, FIELD_PX)
        self.defects = line_edit(
            FIRST_DEFECT,
            "none",
            "defects",
            tip="KIND:MACHINE/CARD:SHARE, several with blanks between; kinds: slow, hot, pcie, link, lost; machines and"
            " cards count from 0",
        )
        self.seed = spin_box(0, 999_999, tip="The same seed gives the same cards and the same noise")
        self.hurries = check_box(
            "Simulated time runs ahead during a check", tip="A check then takes as long as its computation"
        )
        self.hurries.setChecked(True)
        for words, field in (
            ("machines", self.nodes), ("cards of each machine", self.cards), ("defects", self.defects),
            ("seed", self.seed), ("check", self.hurries),
        ):  # fmt: skip
            self.add_row(words, field)
        self.nodes.valueChanged.connect(self.refresh)
        for line in (self.cards, self.defects):
            line.textChanged.connect(self.refresh)
        self.refresh()

    def wanted(self) -> SimulatedFleet:
        """What the fields come to. Raises `BadInput`."""
        findings = Findings()
        profiles = findings.checked(partial(parse_virtual, self.cards.text()), [])
        texts = [text for text in re.split(r"[\s,]+", self.defects.text()) if text]
        defects = [findings.checked(partial(parse_defect, text)) for text in texts]
        findings.demand_none()
        known = [defect for defect in defects if defect is not None]
        return SimulatedFleet(
            self.nodes.value(), profiles, known, seed=self.seed.value(), hurries=self.hurries.isChecked()
        )

    def refresh(self) -> None:
        """Say what the fields come to, or what is wrong."""
        try:
            wanted = self.wanted()
        except BadInput as problem:
            self.say(" ".join(map(sentence, problem.findings)).replace("--defect ", "Defect "), wrong=True)
        else:
            cards = count_text(wanted.factor.size, "simulated card")
            self.say(f"{cards}, {count_text(len(wanted.defects), 'defect')}")

    def _accept(self) -> None:
        self.chosen.emit(self.wanted())
        self.accept()


class ClusterDialog(FormDialog):
    """`chosen` has the address, and the connected machine that is a node; empty: it is this one."""

    chosen = Signal(str, str)

    def __init__(self, connected: Sequence[str] = (), parent: QWidget | None = None) -> None:
        super().__init__("Ray cluster", "Attach", WIDTH_PX, parent)
        self.set_words(CLUSTER)
        self.address = line_edit("auto", "HOST:PORT", "address of the cluster")
        self.add_row("address", self.address)
        here = ("", "this machine", "This machine is a node of the cluster, or reaches its head")
        others = ((name, name, "The cluster is attached to on that machine, over ssh") for name in connected)
        self.node = Choice("attached on", (here, *others))
        if connected:
            self.add_row("attached on", holder(hbox(self.node, None)))
        self.address.textChanged.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Say what the field comes to."""
        text = self.address.text().strip()
        if not text or text.startswith("-") or " " in text:
            self.say("Enter auto on a node of the cluster, or HOST:PORT of its head.", wrong=True)
        else:
            self.say("On a node of the cluster: auto. Elsewhere: HOST:PORT of its head.")

    def _accept(self) -> None:
        self.chosen.emit(self.address.text().strip(), self.node.value)
        self.accept()


class CheckDialog(FormDialog):
    """`chosen` has the plan."""

    chosen = Signal(object)

    def __init__(
        self, cards: int, simulated: bool, left_out: Mapping[str, str] | None = None, parent: QWidget | None = None
    ) -> None:
        """`left_out`: machines whose cards cannot be measured, and why."""
        super().__init__("Check the fleet", "Check", WIDTH_PX, parent)
        some = f"{count_text(cards, 'card')}{' (simulated)' * simulated}"
        words = f"Measures {some} and finds those that are slower than their equals, with the likely cause."
        if left_out:
            listed = "; ".join(f"{name} ({why})" for name, why in left_out.items())
            words += f" Left out: {listed}."
        self.set_words(words)
        plan = CheckPlan()
        self.kinds = {
            kind: check_box(KIND_WORDS[kind][0], tip=KIND_WORDS[kind][1]) for kind in KINDS if kind in KIND_WORDS
        }
        for kind, box in self.kinds.items():
            box.setChecked(kind in plan.kinds)
            box.toggled.connect(self.refresh)
        self.dtypes = MenuEdit(
            ", ".join(plan.dtypes), "dtypes of products",
            [(name, name) for name in ("float16", "bfloat16", "tf32", "float32", "float16, float32")], 200,
        )  # fmt: skip
        self.seconds = QDoubleSpinBox(decimals=1, minimum=0.5, maximum=3600.0, value=plan.seconds, suffix=" s")
        self.seconds.setAccessibleName("Seconds of each measurement")
        self.in_turn = check_box(
            "One card of a machine at a time", tip="Cards that share power and cooling do not slow each other then"
        )
        self.add_row("measure", holder(vbox(*self.kinds.values(), spacing=2)))
        self.add_row("dtypes of products", holder(hbox(self.dtypes, None)))
        self.add_row("each measurement", holder(hbox(self.seconds, None)))
        self.add_row("order", self.in_turn)
        self.dtypes.textChanged.connect(self.refresh)
        self.refresh()

    def plan(self) -> CheckPlan:
        """What the fields come to. Raises `BadInput`."""
        kinds = tuple(kind for kind, box in self.kinds.items() if box.isChecked())
        if not kinds:
            raise BadInput("choose at least one measurement")
        names = [name for name in re.split(r"[\s,]+", self.dtypes.text()) if name]
        dtypes = tuple(dict.fromkeys(name if name == "tf32" else parse_dtype(name) for name in names))
        if not dtypes:
            raise BadInput("name a dtype for the products")
        return CheckPlan(kinds=kinds, dtypes=dtypes, seconds=self.seconds.value(), in_turn=self.in_turn.isChecked())

    def refresh(self) -> None:
        """Say what is wrong, or nothing."""
        try:
            self.plan()
        except BadInput as problem:
            self.say(" ".join(map(sentence, problem.findings)), wrong=True)
        else:
            self.say("The cards are busy meanwhile; a check can be cancelled at any time.")

    def _accept(self) -> None:
        self.chosen.emit(self.plan())
        self.accept()
