"""The dialog for a new tensor. Main thread; never blocks: `open()` shows it, `created` carries the command.

What can be checked without torch is checked while the user types: shape, numbers, dtype, device, and whether it fits.
"""

from __future__ import annotations

import ast
import math
import re
from functools import partial
from typing import NamedTuple

from PySide6.QtWidgets import QCheckBox, QComboBox, QLineEdit, QWidget

from devexplorer.core.base import ITEM_BYTES, MISSING, BadInput, Findings, bytes_text, item_bytes, parse_dtype, sentence
from devexplorer.core.devices.backend import choose_device, parse_device
from devexplorer.core.records import NewTensor
from devexplorer.core.session import State
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.forms.file_field import FileField
from devexplorer.gui.widgets import TypedChoice, check_box, line_edit

FILLS = {
    "ones": "ones",
    "zeros": "zeros",
    "rand": "rand: uniform from 0 to 1",
    "randn": "randn: normal, mean 0, standard deviation 1",
    "arange": "arange: 0, 1, 2, …",
    "text": "Custom values",
    "file": "a .npy file",
}
"""What a tensor can be filled with, in words."""

SAME = "automatic"
"""No dtype chosen: what torch takes for these values."""
WIDTH_PX = 440


def parse_shape(text: str) -> tuple[int, ...]:
    """`2x3`, `2 × 3`, `2, 3` or `(2, 3)` as a shape; empty text and `()` are a scalar.

    >>> parse_shape("2x3"), parse_shape("")
    ((2, 3), ())
    """
    inner = text.strip().removeprefix("(").removesuffix(")").removesuffix(",")
    if not inner.strip():
        return ()
    sizes = []
    for part in inner.replace("×", ",").replace("x", ",").replace("*", ",").split(","):
        word = part.strip()
        if not re.fullmatch(r"[+-]?\d{1,18}", word, re.ASCII):
            raise BadInput(f"'{word}' in the shape is not a whole number; write it like 2x3")
        size = int(word)
        if size < 1:
            raise BadInput(f"{size} in the shape is no size; every size is at least 1")
        sizes.append(size)
    return tuple(sizes)


class CheckedFields(NamedTuple):
    """What the dialog's fields come to: a command, or what is wrong; and the bytes it takes where they can be known."""

    command: NewTensor | None
    findings: tuple[str, ...]
    bytes: int | None
    device: str | None


class NewTensorDialog(FormDialog):
    """Fill in, see the size, create."""

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__("New tensor", "Create", WIDTH_PX, parent)
        self._state = state
        self.name = line_edit(placeholder="automatic")
        self.fill = QComboBox()
        for fill, words in FILLS.items():
            self.fill.addItem(words, fill)
        self.shape = self.first = QLineEdit("2x3")
        self.values = line_edit(placeholder="[[1, 2], [3, 4]]")
        self.file = FileField("Array", "NumPy arrays (*.npy)")
        self.file.edit.setPlaceholderText("path/to/array.npy")
        self.dtype = TypedChoice()  # the short forms are accepted too
        self.dtype.addItems([SAME, *ITEM_BYTES])
        self.device = TypedChoice()  # a device that is not there is a thing to try, with the fall-back
        self.requires_grad = QCheckBox("requires grad")
        self.fall_back = check_box("Fall back to CPU", tip="Create it on the CPU if there is no such device")
        for words, field in (
            ("Name", self.name), ("Fill", self.fill), ("Shape", self.shape), ("Values", self.values), ("File",
                                                                                                       self.file),
            ("dtype", self.dtype), ("Device", self.device), ("", self.requires_grad), ("", self.fall_back),
        ):  # fmt: skip
            self.add_row(words, field)
        for check in (self.requires_grad, self.fall_back):
            check.setAccessibleName(check.text())
        for edit in (self.name, self.shape, self.values, self.file.edit):
            edit.textChanged.connect(self.refresh)
        for box in (self.fill, self.dtype, self.device):
            box.currentTextChanged.connect(self.refresh)
        for check in (self.requires_grad, self.fall_back):
            check.toggled.connect(self.refresh)
        self.refresh_devices()

    def choose_device(self, device: str) -> None:
        """Have this device chosen."""
        self.device.setCurrentText(device)

    def refresh_devices(self) -> None:
        """Devices changed: offer those that can hold tensors, keep what was chosen."""
        kept = self.device.currentText() or "cpu"
        self.device.blockSignals(True)
        self.device.clear()
        self.device.addItems(self._state.usable_devices)
        self.device.setCurrentText(kept)
        self.device.blockSignals(False)
        self.refresh()

    def refresh(self) -> None:
        """Say what the fields come to, and whether it can be created."""
        fill = self.fill.currentData()
        wanted: QWidget = self.shape
        if fill == "text":
            wanted = self.values
        elif fill == "file":
            wanted = self.file
        fields: tuple[QWidget, ...] = (self.shape, self.values, self.file)
        if [field for field in fields if self.form.isRowVisible(field)] != [wanted]:
            for field in fields:
                self.form.setRowVisible(field, field is wanted)
            self.fit()
        checked = self.check()
        if missing := self._missing():
            self.say(missing, ready=False)
        elif checked.findings:
            self.say("\n".join(sentence(finding) for finding in checked.findings), wrong=True)
        else:
            self.say(self._size_words(checked))

    def _missing(self) -> str:
        """What is still to be typed, which is no error; empty: nothing."""
        fill = self.fill.currentData()
        if fill == "text" and not self.values.text().strip():
            return "Enter the values, like [[1, 2], [3, 4]]."
        if fill == "file" and not self.file.edit.text().strip():
            return "Choose a .npy file."
        return ""

    def check(self) -> CheckedFields:
        """What the fields come to now."""
        findings = Findings()
        fill: str = self.fill.currentData()
        shape: tuple[int, ...] = ()
        text = (self.file.edit if fill == "file" else self.values).text().strip()
        if fill == "text":
            shape = findings.checked(partial(_shape_of_values, text), ())
        elif fill == "file":
            if not text.endswith(".npy"):
                findings.add("name a .npy file: it holds one array and cannot run code")
        else:
            shape = findings.checked(partial(parse_shape, self.shape.text()), ())
        wanted = self.dtype.currentText().strip()
        dtype = None if wanted in ("", SAME) else findings.checked(partial(parse_dtype, wanted))
        device = findings.checked(self._device)
        taken = dtype or _default_dtype(fill, text, self.requires_grad.isChecked())
        if fill == "arange" and len(shape) > 1:
            findings.add("arange has one dimension; give one size")
        if fill in ("rand", "randn") and not _holds_fractions(taken):
            findings.add(f"{fill} gives fractions, which {taken} cannot hold; take float32")
        if self.requires_grad.isChecked() and fill != "file" and not _holds_fractions(taken):
            findings.add(f"only floating-point tensors can require a gradient, not {taken}")
        name = self.name.text().strip()
        if ":" in name:
            findings.add("a name has no colon: name:path means a part of a model")
        elif name in self._state.objects:
            findings.add(f"there is a '{name}' already; choose another name")
        size = None if fill == "file" or findings.findings else math.prod(shape) * item_bytes(taken)
        if size is not None and device is not None:
            free, room = self._room(device)
            if free is not None and size > free:
                findings.add(f"it needs {bytes_text(size)} and {room}; choose a smaller shape or dtype")
        if findings.findings or device is None:
            return CheckedFields(None, findings.findings, size, device)
        command = NewTensor(
            name=name or None,
            fill=fill,
            shape=() if fill == "text" else shape,
            text=text if fill in ("text", "file") else "",
            dtype=dtype,
            device=device,
            requires_grad=self.requires_grad.isChecked(),
            fall_back=self.fall_back.isChecked(),
        )
        return CheckedFields(command, (), size, device)

    def _device(self) -> str:
        text = self.device.currentText()
        if self.fall_back.isChecked():
            return parse_device(text)
        return choose_device(text, self._state.usable_devices)

    def _room(self, device: str) -> tuple[int | None, str]:
        """How many bytes there are for values on this device, and in words where."""
        known, host = self._state.devices.get(device), self._state.devices.get("cpu")
        free = None if known is None else known.free_bytes
        if known is not None and known.info.simulated and host is not None:
            in_host = host.free_bytes
            if in_host is not None and (free is None or in_host < free):
                return in_host, f"{device} keeps values in host memory, which has {bytes_text(in_host)} free"
        return free, f"{device} has {bytes_text(free) if free is not None else MISSING} free"

    def _size_words(self, checked: CheckedFields) -> str:
        size = "The file decides the size" if checked.bytes is None else f"It takes {bytes_text(checked.bytes)}"
        device = checked.device or ""
        if device not in self._state.devices:
            return f"{size}. There is no {device} here, so it will be on the CPU."
        return f"{size}. {self._room(device)[1]}."

    def command(self) -> NewTensor | None:
        """See `FormDialog`."""
        return self.check().command


def _shape_of_values(text: str) -> tuple[int, ...]:
    """Shape of nested lists of numbers, as the engine will read them."""
    try:
        values = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise BadInput("the values are no list of numbers; write them like [[1, 2], [3, 4]]") from None
    return _nested_shape(values)


def _nested_shape(values: object) -> tuple[int, ...]:
    if isinstance(values, (bool, int, float, complex)):
        return ()
    if not isinstance(values, (list, tuple)) or not values:
        raise BadInput("the values are no list of numbers; write them like [[1, 2], [3, 4]]")
    shapes = {_nested_shape(value) for value in values}
    if len(shapes) > 1:
        raise BadInput("the rows of the values have different lengths; make them equally long")
    return (len(values), *shapes.pop())


def _default_dtype(fill: str, text: str, requires_grad: bool) -> str:
    """What torch takes where no dtype is chosen; of typed values the widest kind of number in them."""
    if fill == "arange":
        return "float32" if requires_grad else "int64"
    if fill != "text":
        return "float32"
    if "j" in text:
        return "complex64"
    if "." in text or "e" in text.replace("True", "").replace("False", "").lower():
        return "float32"
    return "int64" if any(letter.isdigit() for letter in text) else "bool"


def _holds_fractions(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))
