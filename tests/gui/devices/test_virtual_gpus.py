from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.profiles import load_profiles, parse_virtual
from devexplorer.core.records import AddVirtual
from devexplorer.gui.devices.dialogs import VirtualGpusDialog, profile_facts

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def dialog(qtbot: QtBot) -> VirtualGpusDialog:
    dialog = VirtualGpusDialog()
    qtbot.addWidget(dialog)
    return dialog


def visible(dialog: VirtualGpusDialog) -> list[str]:
    items = [dialog.list.item(at) for at in range(dialog.list.count())]
    return [item.data(Qt.ItemDataRole.UserRole) for item in items if not item.isHidden()]


def test_every_profile_is_there_and_two_of_the_tutorials_card_are_chosen(dialog: VirtualGpusDialog):
    assert visible(dialog) == list(load_profiles())
    assert dialog.line.text() == "2x Tesla T4"
    assert dialog.message.text() == "2 virtual GPUs, 30.0 GiB of counted memory"


def test_searching_leaves_what_matches_and_chooses_the_first(qtbot: QtBot, dialog: VirtualGpusDialog):
    qtbot.keyClicks(dialog.search, "rtx 40")
    assert visible(dialog) == [name for name in load_profiles() if "RTX" in name and "40" in name]
    assert dialog.profile is not None
    assert dialog.profile.name == visible(dialog)[0]
    assert dialog.line.text() == f"2x {visible(dialog)[0]}"


def test_the_number_changes_the_line(dialog: VirtualGpusDialog):
    dialog.count.setValue(3)
    assert dialog.line.text() == "3x Tesla T4"


def test_different_cards_can_be_side_by_side(qtbot: QtBot, dialog: VirtualGpusDialog):
    dialog.line.setText("2x Tesla T4")
    qtbot.mouseClick(dialog.more_button, LEFT)
    assert dialog.line.text() == "2x Tesla T4, 2x Tesla T4"
    assert len(parse_virtual(dialog.line.text())) == 4


@pytest.mark.parametrize(
    ("line", "said"), [("2x Tesla T5", "no profile"), ("", "no virtual GPU is named"), ("0x Tesla T4", "'0'")]
)
def test_a_line_that_cannot_be_is_refused_with_the_reason(
    qtbot: QtBot, dialog: VirtualGpusDialog, line: str, said: str
):
    dialog.line.setText(line)
    assert said.lower() in dialog.message.text().lower()
    assert dialog.message.property("words") == "error"
    assert not dialog.accept_button.isEnabled()
    with qtbot.assertNotEmitted(dialog.command_requested):
        qtbot.mouseClick(dialog.accept_button, LEFT)


def test_add_asks_for_what_the_line_says(qtbot: QtBot, dialog: VirtualGpusDialog):
    dialog.line.setText("4x NVIDIA A10, Tesla T4")
    with qtbot.waitSignal(dialog.command_requested) as requested:
        qtbot.mouseClick(dialog.accept_button, LEFT)
    assert requested.args == [AddVirtual(spec="4x NVIDIA A10, Tesla T4")]
    assert dialog.result() == VirtualGpusDialog.DialogCode.Accepted


def test_figures_that_no_source_confirms_are_marked():
    profiles = load_profiles()
    unsure = next(profile for profile in profiles.values() if "memory_mib" in profile.unverified)
    facts = {fact.label: fact.value for fact in profile_facts(unsure)}
    assert facts["memory"].endswith("(unverified)")
    derived = next(profile for profile in profiles.values() if "int8" in profile.computed)
    assert {fact.label: fact.value for fact in profile_facts(derived)}["int8"].endswith("(computed)")
    plain = {fact.label: fact.value for fact in profile_facts(profiles["Tesla T4"])}
    assert plain["memory"] == "15.0 GiB"
    assert plain["float16"] == "65 TFLOP/s"
    assert plain["bfloat16"] == "not supported by this chip"
