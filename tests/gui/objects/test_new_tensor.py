from __future__ import annotations

from itertools import pairwise

import pytest
from fakes.look_records import CPU, CUDA, GIB, MIB, OLD, VGPU, sample, show, state_with, tensor
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.base import BadInput
from devexplorer.core.records import NewTensor
from devexplorer.core.session.state import State
from devexplorer.gui.objects.new_tensor import FILLS, NewTensorDialog, parse_shape

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def state() -> State:
    state = state_with(CPU, CUDA, VGPU, OLD)
    sample(state, "cuda:0", 24 * GIB - MIB)
    return state


@pytest.fixture
def dialog(qtbot: QtBot, state: State) -> NewTensorDialog:
    dialog = NewTensorDialog(state)
    qtbot.addWidget(dialog)
    return dialog


def choose_fill(dialog: NewTensorDialog, fill: str) -> None:
    dialog.fill.setCurrentIndex(list(FILLS).index(fill))


def findings(dialog: NewTensorDialog) -> tuple[str, ...]:
    return dialog.check().findings


@pytest.mark.parametrize(
    ("text", "shape"),
    [("2x3", (2, 3)), ("2 × 3", (2, 3)), ("(2, 3)", (2, 3)), ("5", (5,)), ("(5,)", (5,)), ("", ()), ("()", ())],
)
def test_shapes_are_read_as_people_write_them(text: str, shape: tuple[int, ...]):
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "said"),
    [("2x", "'' in the shape"), ("2xa", "'a' in the shape"), ("0", "0 in"), ("-1x2", "-1 in"), ("1.5", "'1.5'"),
     ("２x3", "'２' in"), ("1_0", "'1_0'"), ("9" * 400, "whole number")],
)  # fmt: skip
def test_shapes_that_cannot_be_are_named(text: str, said: str):
    with pytest.raises(BadInput, match=said):
        parse_shape(text)


def test_the_dialog_says_what_it_takes_and_what_is_free(dialog: NewTensorDialog):
    dialog.shape.setText("256x1024")
    dialog.choose_device("cuda:0")
    assert dialog.message.text() == "It takes 1.00 MiB. cuda:0 has 1.00 MiB free."
    dialog.dtype.setCurrentText("half")
    assert dialog.message.text().startswith("It takes 512.00 KiB.")
    assert dialog.accept_button.isEnabled()


def test_what_does_not_fit_is_refused_with_the_bytes(dialog: NewTensorDialog):
    dialog.shape.setText("1024x1024")
    dialog.choose_device("cuda:0")
    assert findings(dialog) == ("it needs 4.00 MiB and cuda:0 has 1.00 MiB free; choose a smaller shape or dtype",)
    assert not dialog.accept_button.isEnabled()
    assert "4.00 MiB" in dialog.accept_button.toolTip()


def test_everything_that_is_wrong_is_said_at_once(qtbot: QtBot, dialog: NewTensorDialog):
    dialog.shape.setText("2xq")
    dialog.dtype.setCurrentText("flot32")
    dialog.device.setCurrentText("cuda:7")
    lines = dialog.message.text().split("\n")
    assert len(lines) == 3
    assert all(line[0].isupper() or line[0] == "'" for line in lines)
    assert dialog.message.property("words") == "error"
    with qtbot.assertNotEmitted(dialog.command_requested):
        qtbot.mouseClick(dialog.accept_button, LEFT)


def test_only_devices_that_can_hold_tensors_are_offered(dialog: NewTensorDialog):
    assert [dialog.device.itemText(at) for at in range(dialog.device.count())] == ["cpu", "cuda:0", "vgpu:0"]


def test_a_click_into_a_field_opens_its_list_and_what_is_typed_replaces_the_text(qtbot: QtBot, dialog: NewTensorDialog):
    dialog.show()
    for box, item in ((dialog.device, "vgpu:0"), (dialog.dtype, "float16")):
        line, view = box.lineEdit(), box.view()
        qtbot.mouseClick(line, LEFT)
        assert view.isVisible()
        index = box.model().index(box.findText(item), 0)
        view.scrollTo(index)
        QApplication.processEvents()
        qtbot.mouseMove(view.viewport(), view.visualRect(index).center())
        qtbot.mouseClick(view.viewport(), LEFT, pos=view.visualRect(index).center())
        qtbot.waitUntil(lambda view=view: not view.isVisible())
        assert box.currentText() == item
        qtbot.mouseClick(line, LEFT)
        qtbot.keyClicks(view, "cpu")
        assert not view.isVisible()
    assert (dialog.device.currentText(), dialog.dtype.currentText()) == ("cpu", "cpu")


def test_a_missing_device_works_with_the_fall_back(dialog: NewTensorDialog):
    dialog.device.setCurrentText("cuda:7")
    assert findings(dialog) != ()
    dialog.fall_back.setChecked(True)
    assert findings(dialog) == ()
    assert "There is no cuda:7 here, so it will be on the CPU." in dialog.message.text()
    command = dialog.check().command
    assert command is not None
    assert (command.device, command.fall_back) == ("cuda:7", True)


def test_typed_values_decide_the_shape(dialog: NewTensorDialog):
    choose_fill(dialog, "text")
    dialog.values.setText("[[1, 2, 3], [4, 5, 6]]")
    assert dialog.check().bytes == 6 * 8
    dialog.values.setText("[1.5, 2]")
    assert dialog.check().bytes == 2 * 4
    dialog.values.setText("[True, False]")
    assert dialog.check().bytes == 2
    command = dialog.check().command
    assert command is not None
    assert (command.fill, command.text, command.shape) == ("text", "[True, False]", ())


@pytest.mark.parametrize("text", ["", "[1, 2", "[]", "__import__('os')", "['a']", "{1: 2}", "[" * 300])
def test_values_that_are_no_numbers_are_refused(dialog: NewTensorDialog, text: str):
    choose_fill(dialog, "text")
    dialog.values.setText(text)
    assert "no list of numbers" in findings(dialog)[0]


def test_rows_of_different_lengths_are_refused(dialog: NewTensorDialog):
    choose_fill(dialog, "text")
    dialog.values.setText("[[1, 2], [3]]")
    assert findings(dialog) == ("the rows of the values have different lengths; make them equally long",)


def test_only_arrays_without_code_are_opened(dialog: NewTensorDialog):
    choose_fill(dialog, "file")
    dialog.file.set_path("model.pt")
    assert "npy" in findings(dialog)[0]
    dialog.file.set_path("a.npy")
    assert dialog.message.text().startswith("The file decides the size.")


def test_combinations_that_torch_refuses_are_refused_here(dialog: NewTensorDialog):
    dialog.dtype.setCurrentText("int64")
    dialog.requires_grad.setChecked(True)
    assert findings(dialog) == ("only floating-point tensors can require a gradient, not int64",)
    dialog.requires_grad.setChecked(False)
    choose_fill(dialog, "randn")
    assert findings(dialog) == ("randn gives fractions, which int64 cannot hold; take float32",)
    choose_fill(dialog, "arange")
    assert findings(dialog) == ("arange has one dimension; give one size",)


def test_a_name_that_is_taken_or_has_a_colon_is_refused(dialog: NewTensorDialog, state: State):
    show(state, tensor("x"))
    dialog.name.setText("x")
    assert "choose another name" in findings(dialog)[0]
    dialog.name.setText("a:b")
    assert "colon" in findings(dialog)[0]
    dialog.name.setText("y")
    assert findings(dialog) == ()


def test_create_sends_the_command_and_closes(qtbot: QtBot, dialog: NewTensorDialog):
    qtbot.keyClicks(dialog.name, "w")
    choose_fill(dialog, "rand")
    dialog.shape.setText("4x5")
    dialog.dtype.setCurrentText("bf16")
    dialog.choose_device("vgpu:0")
    dialog.requires_grad.setChecked(True)
    with qtbot.waitSignal(dialog.command_requested) as created:
        qtbot.mouseClick(dialog.accept_button, LEFT)
    assert created.args == [
        NewTensor(name="w", fill="rand", shape=(4, 5), dtype="bfloat16", device="vgpu:0", requires_grad=True)
    ]
    assert dialog.result() == NewTensorDialog.DialogCode.Accepted


def test_no_field_is_squeezed_however_much_is_wrong(dialog: NewTensorDialog, qtbot: QtBot):
    dialog.show()
    qtbot.waitExposed(dialog)
    for fill in FILLS:
        choose_fill(dialog, fill)
        dialog.shape.setText("2xa, b, c")
        dialog.values.setText("[[1, 2], [3")
        dialog.dtype.setCurrentText("float17")
        dialog.device.setCurrentText(
            "a device whose name is so long that the message about it takes several lines in the dialog"
        )
        dialog.name.setText("a:b")
        QApplication.processEvents()
        fields = [dialog.name, dialog.fill, dialog.shape, dialog.values, dialog.file, dialog.dtype, dialog.device]
        shown = [field for field in fields if field.isVisible()]
        assert len(shown) == 5, fill
        for field in (*shown, dialog.requires_grad, dialog.fall_back, dialog.accept_button):
            assert field.height() >= field.sizeHint().height(), f"{fill}: {field.accessibleName()}"
        for above, below in pairwise(shown):
            assert above.geometry().bottom() < below.geometry().top()
        message = dialog.message
        assert message.height() >= message.heightForWidth(message.width()), "all of what is wrong can be read"
