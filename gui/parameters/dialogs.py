"""The dialogs for new values: of a parameter or of all weights of a module, of one element of a tensor. Main thread;
`command_requested` carries the command."""

from __future__ import annotations

import math
from typing import NamedTuple

from PySide6.QtWidgets import QComboBox, QLineEdit, QWidget

from devexplorer.core.base import shape_text
from devexplorer.core.parameters.records import Initialise
from devexplorer.core.records import EditElement, Row
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import check_box, label, line_edit, spin_box

WIDTH_PX = 440


class RuleChoice(NamedTuple):
    """One way to draw initial values: its words and its options with what they are at first."""

    words: str
    options: dict[str, float]


RULES = {
    "normal": RuleChoice("normal: mean and deviation", {"mean": 0.0, "std": 0.01}),
    "uniform": RuleChoice("uniform between two numbers", {"low": -0.1, "high": 0.1}),
    "constant": RuleChoice("constant: one number everywhere", {"value": 1.0}),
    "zeros": RuleChoice("zeros", {}),
    "ones": RuleChoice("ones", {}),
    "xavier-uniform": RuleChoice("Xavier (Glorot), uniform: for tanh and sigmoid", {"gain": 1.0}),
    "xavier-normal": RuleChoice("Xavier (Glorot), normal", {"gain": 1.0}),
    "kaiming-uniform": RuleChoice("Kaiming (He), uniform: for ReLU", {"a": 0.0}),
    "kaiming-normal": RuleChoice("Kaiming (He), normal", {"a": 0.0}),
    "piecewise": RuleChoice(
        "piecewise: uniform, small values become 0", {"low": -10.0, "high": 10.0, "threshold": 5.0}
    ),
}
"""The rules of `Initialise`."""
_WORDS = {
    "mean": "mean", "std": "deviation", "low": "from", "high": "to", "value": "value", "gain": "gain",
    "a": "slope below 0", "threshold": "kept from size",
}  # fmt: skip


class InitialiseDialog(FormDialog):
    """Choose a rule, its numbers and a seed."""

    def __init__(self, target: str, row: Row, parent: QWidget | None = None) -> None:
        super().__init__(f"Initialise {target}", "Initialise", WIDTH_PX, parent)
        self._target = target
        is_module = row.kind == "module"
        self.rule = QComboBox()
        for name, rule in RULES.items():
            self.rule.addItem(rule.words, name)
        self.numbers = {option: QLineEdit() for rule in RULES.values() for option in rule.options}
        self.seed = spin_box(0, 2**31 - 1)
        self.biases = check_box(
            "biases too", tip="Parameters of one dimension as well; they become 0 under the Xavier and Kaiming rules"
        )
        self.add_row(
            "what",
            label("every weight below this module" if is_module else f"{target}, {shape_text(row.shape)}", wrap=True),
        )
        self.add_row("rule", self.rule)
        for option, field in self.numbers.items():
            self.add_row(_WORDS[option], field)
            field.textChanged.connect(self._check)
        self.add_row("seed", self.seed)
        self.add_row("", self.biases)
        self.form.setRowVisible(self.biases, is_module)
        self.rule.currentIndexChanged.connect(self._offer_numbers)
        self._offer_numbers()

    def _offer_numbers(self) -> None:
        wanted = RULES[self.rule.currentData()].options
        for option, field in self.numbers.items():
            self.form.setRowVisible(field, option in wanted)
            if option in wanted:
                field.setText(f"{wanted[option]:g}")
        self._check()
        self.fit()

    def _read(self) -> tuple[dict[str, float], list[str]]:
        """The rule's numbers, and the words of those that are none."""
        options, wrong = {}, []
        for option in RULES[self.rule.currentData()].options:
            try:
                options[option] = float(self.numbers[option].text())
            except ValueError:
                options[option] = math.nan
            if not math.isfinite(options[option]):
                wrong.append(_WORDS[option])
        return options, wrong

    def _check(self) -> None:
        wrong = self._read()[1]
        if wrong:
            self.say(" ".join(f"“{words}” must be a number." for words in wrong), wrong=True)
        else:
            self.say("The same seed gives the same values again.")

    def command(self) -> Initialise | None:
        """See `FormDialog`."""
        options, wrong = self._read()
        if wrong:
            return None
        rule, seed, biases = self.rule.currentData(), self.seed.value(), self.biases.isChecked()
        return Initialise(target=self._target, rule=rule, options=options, biases=biases, seed=seed)


ELEMENT_PX = 380


class EditElementDialog(FormDialog):
    """Says what is wrong with an index or a value while it is typed."""

    def __init__(self, target: str, shape: tuple[int, ...], parent: QWidget | None = None) -> None:
        super().__init__(f"Set one element of {target}", "Set", ELEMENT_PX, parent)
        self._target, self._shape = target, shape
        self.index = line_edit(", ".join("0" for _ in shape), name="Index")
        self.value = line_edit("1.0", name="Value")
        self.add_row("shape", label(shape_text(shape)))
        self.add_row("index", self.index)
        self.add_row("value", self.value)
        for field in (self.index, self.value):
            field.textChanged.connect(self.command)
        self.command()

    def command(self) -> EditElement | None:
        """Say what is wrong with the fields; return the command if nothing is."""
        wrong: list[str] = []
        index: tuple[int, ...] = ()
        value = math.nan
        try:
            index = tuple(int(part) for part in self.index.text().split(",") if part.strip())
        except ValueError:
            wrong.append("The index is a whole number per dimension, separated by commas.")
        else:
            if len(index) != len(self._shape) or any(
                not 0 <= i < size for i, size in zip(index, self._shape, strict=False)
            ):
                wrong.append(f"The index must be inside {shape_text(self._shape)}; the first element is at 0.")
        try:
            value = float(self.value.text())
        except ValueError:
            wrong.append("The value must be a number.")
        self.say(" ".join(wrong), wrong=bool(wrong))
        return None if wrong else EditElement(target=self._target, index=index, value=value)
