"""The dialog of the visible devices: checks, order and text are one list, the effect is shown first, and only a list is
sent."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from fakes.look_records import CPU, ENGINE, state_with
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.records import DeviceInfo, Problem
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.gui.devices.dialogs import NUMBERS, VisibleDevicesDialog

LEFT = Qt.MouseButton.LeftButton
Open = Callable[..., VisibleDevicesDialog]


def card(index: int, ordinal: int | None, **more: object) -> DeviceInfo:
    given: dict[str, object] = {
        "id": f"nvml:{index}" if ordinal is None else f"cuda:{ordinal}", "kind": "cuda", "name": "NVIDIA A10",
        "uuid": f"GPU-{index}{index}", "nvml_index": index, "cuda_ordinal": ordinal, "usable": ordinal is not None,
        "memory_total_bytes": 24 << 30,
    }  # fmt: skip
    return DeviceInfo(**given | more)  # type: ignore[arg-type]


def virtual(visible: str | None) -> tuple[DeviceInfo, ...]:
    machine = VirtualMachine()
    machine.set_visible(visible)
    machine.add(parse_virtual("Tesla T4, NVIDIA A10"))
    return machine.devices()


@pytest.fixture
def opened(qtbot: QtBot) -> Open:
    def show(
        *infos: DeviceInfo, running: str | None = None, problems: tuple[Problem, ...] = ()
    ) -> VisibleDevicesDialog:
        state = state_with(CPU, *infos, problems=problems)
        state.engine = msgspec.structs.replace(ENGINE, cuda_visible_devices=running)
        dialog = VisibleDevicesDialog(state)
        qtbot.addWidget(dialog)
        return dialog

    return show


def rows(dialog: VisibleDevicesDialog) -> list[tuple[str, ...]]:
    items = [dialog.tree.topLevelItem(at) for at in range(dialog.tree.topLevelItemCount())]
    return [tuple(item.text(column) for column in range(5)) for item in items if item is not None]


def check(dialog: VisibleDevicesDialog, row: int, on: bool) -> None:
    item = dialog.tree.topLevelItem(row)
    assert item is not None
    item.setCheckState(0, Qt.CheckState.Checked if on else Qt.CheckState.Unchecked)


def checks(dialog: VisibleDevicesDialog) -> list[str]:
    return [info.id for info in dialog.tree.checked_cards()]


def test_every_card_is_there_with_both_numbers_and_its_uuid(opened: Open) -> None:
    dialog = opened(card(1, 0), card(0, 1), card(2, None))
    assert rows(dialog) == [
        ("NVIDIA A10", "cuda:0", "1", "24.0 GiB", "GPU-11"),
        ("NVIDIA A10", "cuda:1", "0", "24.0 GiB", "GPU-00"),
        ("NVIDIA A10", "not visible", "2", "24.0 GiB", "GPU-22"),
    ]
    assert checks(dialog) == ["cuda:0", "cuda:1"]
    assert dialog.value == "GPU-11,GPU-00"
    assert dialog.now.full_text == "unset"


def test_checks_and_order_write_the_list_and_the_list_moves_the_checks(qtbot: QtBot, opened: Open) -> None:
    dialog = opened(card(0, 0), card(1, 1))
    qtbot.mouseClick(dialog.down_button, LEFT)
    assert dialog.value == "GPU-11,GPU-00"
    assert "cuda:0 is NVIDIA A10 (nvidia-smi 1)" in dialog.message.text()
    assert not dialog.down_button.isEnabled()
    qtbot.mouseClick(dialog.up_button, LEFT)
    check(dialog, 0, on=False)
    assert dialog.value == "GPU-11"
    dialog.line.setText("0")
    assert checks(dialog) == ["cuda:0"]
    assert dialog.line.text() == "0", "what was typed stays as it was typed"


def test_numbers_are_cudas_own_where_they_are_known(opened: Open) -> None:
    dialog = opened(card(1, 0), card(0, 1))
    check(dialog, 1, on=False)
    dialog.notation.setCurrentText(NUMBERS)
    assert dialog.value == "0"
    assert "cuda:0 is NVIDIA A10 (nvidia-smi 1)" in dialog.message.text()


def test_numbers_of_cards_that_differ_are_not_sure_and_uuids_are(opened: Open) -> None:
    mixed = Problem("the cards differ and CUDA_DEVICE_ORDER is not set", field="cuda_ordinal")
    dialog = opened(card(0, 0), card(1, None), running="GPU-00", problems=(mixed,))
    assert "cuda:0 is" in dialog.message.text()
    dialog.line.setText("1")
    assert "not sure" in dialog.message.text()


@pytest.mark.parametrize(
    ("text", "said"), [("0,7", "There is no card 7"), ("", "No card will be visible"), ("0,0", "named twice")]
)
def test_what_a_list_really_does_is_said_before_it_is_done(qtbot: QtBot, opened: Open, text: str, said: str) -> None:
    dialog = opened(card(0, 0), card(1, 1))
    dialog.line.setText(text)
    assert said in dialog.message.text()
    with qtbot.waitSignal(dialog.chosen) as chosen:
        qtbot.mouseClick(dialog.accept_button, LEFT)
    assert chosen.args == [text]


def test_what_is_no_list_does_not_go_out(qtbot: QtBot, opened: Open) -> None:
    dialog = opened(card(0, 0))
    dialog.line.setText("all")
    assert "'all' is neither a number nor a UUID" in dialog.message.text()
    assert dialog.message.property("words") == "error"
    with qtbot.assertNotEmitted(dialog.chosen):
        qtbot.mouseClick(dialog.accept_button, LEFT)
    assert checks(dialog) == ["cuda:0"]


def test_as_inherited_is_a_choice_of_its_own(qtbot: QtBot, opened: Open) -> None:
    dialog = opened(card(0, 0), running="0")
    assert dialog.line.text() == "0"
    with qtbot.waitSignal(dialog.chosen) as chosen:
        qtbot.mouseClick(dialog.inherit_button, LEFT)
    assert chosen.args == [None]
    assert dialog.result() == VisibleDevicesDialog.DialogCode.Accepted


def test_virtual_gpus_are_chosen_in_the_same_way(qtbot: QtBot, opened: Open) -> None:
    dialog = opened(*virtual("1"), running="1")
    assert [row[:3] for row in rows(dialog)] == [
        ("NVIDIA A10  simulated", "vgpu:0", "1"),
        ("Tesla T4  simulated", "not visible", "0"),
    ]
    assert dialog.notation.currentText() == NUMBERS, "as the running engine has it"
    check(dialog, 1, on=True)
    assert dialog.value == "1,0"
    assert dialog.message.text() == "vgpu:0 is NVIDIA A10 (card 1), vgpu:1 is Tesla T4 (card 0)."


def test_a_mig_instance_is_chosen_by_its_uuid_and_one_of_them(opened: Open) -> None:
    parts = [
        card(0, None, id=f"nvml:0/{at}", name=f"A100 MIG {at}", uuid=f"MIG-{at}", parent="nvml:0") for at in (0, 1)
    ]
    dialog = opened(card(0, None), *parts)
    dialog.notation.setCurrentText(NUMBERS)
    for row in (1, 2):
        check(dialog, row, on=True)
    assert dialog.value == "MIG-0,MIG-1"
    assert "A process gets one MIG instance" in dialog.message.text()
    assert "cuda:0 is A100 MIG 0 (MIG-0)" in dialog.message.text()


def test_where_there_is_no_card_virtual_gpus_are_named(opened: Open) -> None:
    assert "Virtual GPUs follow the variable too" in opened().message.text()
