"""The dialog for new initial values, of a parameter or of all weights of a module. Main thread; `command_requested` carries the command."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QDialog, QFormLayout, QHBoxLayout, QLineEdit, QPushButton, QSpinBox, QWidget

from devexplorer.core.formats import shape_text
from devexplorer.core.records.laboratory import Initialise
from devexplorer.core.records.objects import Row
from devexplorer.gui.panels.panel import give_room, label

MIN_PX = 420


class Rule(NamedTuple):
    """One way to draw initial values: its words and its options with what they are at first."""

    words: str
    options: dict[str, float]


RULES = {
    "normal": Rule("normal: mean and deviation", {"mean": 0.0, "std": 0.01}),
    "uniform": Rule("uniform between two numbers", {"low": -0.1, "high": 0.1}),
    "constant": Rule("constant: one number everywhere", {"value": 1.0}),
    "zeros": Rule("zeros", {}),
    "ones": Rule("ones", {}),
    "xavier-uniform": Rule("Xavier (Glorot), uniform: for tanh and sigmoid", {"gain": 1.0}),
    "xavier-normal": Rule("Xavier (Glorot), normal", {"gain": 1.0}),
    "kaiming-uniform": Rule("Kaiming (He), uniform: for ReLU", {"a": 0.0}),
    "kaiming-normal": Rule("Kaiming (He), normal", {"a": 0.0}),
    "piecewise": Rule("piecewise: uniform, small values become 0", {"low": -10.0, "high": 10.0, "threshold": 5.0}),
}
"""The rules of `Initialise`."""
_WORDS = {
    "mean": "mean", "std": "deviation", "low": "from", "high": "to", "value": "value", "gain": "gain",
    "a": "slope below 0", "threshold": "kept from size",
}  # fmt: skip


class InitialiseDialog(QDialog):
    """Choose a rule, its numbers and a seed."""

    command_requested = Signal(object)
    """The `Initialise`."""

    def __init__(self, target: str, row: Row, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._target = target
        self.setWindowTitle(f"Initialise {target}")
        self.setMinimumWidth(MIN_PX)
        is_module = row.kind == "module"
        self.rule = QComboBox()
        self.rule.setAccessibleName("rule")
        for name, rule in RULES.items():
            self.rule.addItem(rule.words, name)
        self.numbers: dict[str, QLineEdit] = {}
        self.seed = QSpinBox()
        self.seed.setRange(0, 2**31 - 1)
        self.seed.setAccessibleName("seed")
        give_room(self.seed)
        self.biases = QCheckBox("biases too")
        self.biases.setToolTip("Parameters of one dimension as well; they become 0 under the Xavier and Kaiming rules")
        self.biases.setVisible(is_module)
        self.message = label(words="error", wrap=True)
        self.message.hide()
        self.accept_button = QPushButton("Initialise")
        self.accept_button.setProperty("look", "primary")
        self.accept_button.setDefault(True)
        self.accept_button.clicked.connect(self._accept)
        cancel = QPushButton("Cancel")
        cancel.setAutoDefault(False)
        cancel.clicked.connect(self.reject)
        self._form = QFormLayout(self)
        self._form.setContentsMargins(16, 16, 16, 16)
        self._form.setHorizontalSpacing(12)
        self._form.setVerticalSpacing(8)
        what = "every weight below this module" if is_module else shape_text(row.shape)
        self._form.addRow(label("what", words="dim"), label(what))
        self._form.addRow(label("rule", words="dim"), self.rule)
        for option in dict.fromkeys(option for rule in RULES.values() for option in rule.options):
            field = QLineEdit()
            field.setAccessibleName(_WORDS[option])
            self.numbers[option] = field
            self._form.addRow(label(_WORDS[option], words="dim"), field)
        self._form.addRow(label("seed", words="dim"), self.seed)
        self._form.addRow(label(), self.biases)
        self._form.addRow(self.message)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addStretch(1)
        buttons.addWidget(cancel)
        buttons.addWidget(self.accept_button)
        self._form.addRow(buttons)
        self.rule.currentIndexChanged.connect(self._offer_numbers)
        self._offer_numbers()

    def _offer_numbers(self) -> None:
        wanted = RULES[self.rule.currentData()].options
        for option, field in self.numbers.items():
            self._form.setRowVisible(field, option in wanted)
            if option in wanted:
                field.setText(f"{wanted[option]:g}")
        self.message.hide()
        self.adjustSize()

    def _accept(self) -> None:
        options, wrong = {}, []
        for option in RULES[self.rule.currentData()].options:
            try:
                options[option] = float(self.numbers[option].text())
            except ValueError:
                wrong.append(f"“{_WORDS[option]}” must be a number.")
        self.message.setText(f"✕ {' '.join(wrong)}")  # never colour alone
        self.message.setVisible(bool(wrong))
        if wrong:
            return
        rule, seed, biases = self.rule.currentData(), self.seed.value(), self.biases.isChecked()
        self.command_requested.emit(Initialise(target=self._target, rule=rule, options=options, biases=biases, seed=seed))
        self.accept()
