from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import (
    CPU,
    CUDA,
    ENGINE,
    GIB,
    MIB,
    OLD,
    VGPU,
    allocator,
    many,
    mlp,
    sample,
    show,
    state_with,
    tensor,
)
from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent, QFontMetrics, QImage, QRegion
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.records import Problem
from devexplorer.core.session.state import State
from devexplorer.gui.actions.controller import MIME, DropVerdict, decode, encode, verdicts
from devexplorer.gui.devices.card import DeviceCard, DeviceItem, DeviceRow
from devexplorer.gui.devices.card_text import card_texts, card_tooltip
from devexplorer.gui.devices.panel import DevicesPanel
from devexplorer.gui.widgets import MemoryBar
from devexplorer.gui.widgets.theme import Role, font

LEFT = Qt.MouseButton.LeftButton


def verdict(state: State, targets: tuple[str, ...], device: str) -> DropVerdict:
    return verdicts(state, targets, (device,))[device]


def panel_for(qtbot: QtBot, state: State, height: int = 520) -> DevicesPanel:
    return hosted(qtbot, lambda _: DevicesPanel(state), 276, height)


def drag_over(item: DeviceItem, data: QMimeData) -> bool:
    event = QDragEnterEvent(QPoint(5, 5), Qt.DropAction.MoveAction, data, LEFT, Qt.KeyboardModifier.NoModifier)
    event.ignore()
    QApplication.sendEvent(item, event)
    return event.isAccepted()


def drop_on(item: DeviceItem, data: QMimeData) -> None:
    assert drag_over(item, data)  # Qt delivers a drop only where a drag was accepted
    QApplication.sendEvent(
        item, QDropEvent(QPointF(5, 5), Qt.DropAction.MoveAction, data, LEFT, Qt.KeyboardModifier.NoModifier)
    )


# --- words ---------------------------------------------------------------------------------------------------------


def test_a_card_says_what_the_readings_say():
    state = state_with(CPU, CUDA)
    sample(state, "cuda:0", int(6.71 * GIB), utilization_percent=99.2, temperature_c=61.0, power_w=148.6)
    texts = card_texts(state.devices["cuda:0"])
    assert (texts.id, texts.name, texts.note) == ("cuda:0", "NVIDIA A10", "nvidia-smi 1")
    assert (texts.used, texts.of_total, texts.short) == ("6.71", "of 24.0 GiB", "6.71/24.0")
    assert [" ".join(filter(None, reading)) for reading in texts.readings] == ["util 99 %", "61 °C", "149 W"]


def test_what_is_not_available_is_a_dash_and_never_zero():
    texts = card_texts(state_with(CUDA).devices["cuda:0"])
    assert texts.used == "—"
    assert [reading.value for reading in texts.readings] == ["—", "—", "—"]


def test_the_cpu_shows_its_threads_and_a_simulated_card_what_a_card_shows():
    state = state_with(CPU, VGPU)
    assert card_texts(state.devices["cpu"]).readings[-1] == ("threads", "16", "")
    texts = card_texts(state.devices["vgpu:0"])
    assert texts.simulated
    assert [reading.after or reading.before for reading in texts.readings] == ["util", "°C", "W"]


def test_a_reading_without_room_is_not_painted_over_another(qtbot: QtBot):
    state = state_with(CPU, CUDA)
    panel = panel_for(qtbot, state)
    card = panel.items["cuda:0"]

    def picture(power_w: float) -> QImage:
        sample(state, "cuda:0", GIB, utilization_percent=100.0, temperature_c=100.0, power_w=power_w)
        panel.refresh_texts()
        return card.grab().toImage()

    assert picture(1000.0) != picture(1100.0)
    card.resize(130, card.height())
    assert picture(1000.0) == picture(1100.0)


def test_reasons_are_on_the_card_and_in_its_tooltip():
    problems = (
        Problem("Driver too old.", device="cuda:0"),
        Problem("not supported", device="cuda:0", field="fan_percent"),
    )
    state = state_with(CUDA, OLD, problems=problems)
    assert card_texts(state.devices["nvml:2"], problems).reason == "It is too old for this torch."
    assert card_texts(state.devices["cuda:0"], problems).warning == "Driver too old."
    assert "fan_percent: not supported" in card_tooltip(state.devices["cuda:0"], problems)


def test_what_holds_the_clocks_down_is_on_the_card_and_an_idle_card_is_none_of_it():
    state = state_with(CUDA)
    card = state.devices["cuda:0"]
    sample(state, "cuda:0", GIB, throttle_reasons=("power cap", "hardware slowdown (heat, or a weak supply)"))
    assert card_texts(card).held == "power cap, hardware slowdown"
    sample(
        state,
        "cuda:0",
        GIB,
        throttle_reasons=("too hot (the driver lowers the clocks)", "too hot (the hardware lowers the clocks)"),
    )
    assert card_texts(card).held == "too hot"
    for nothing in (("idle",), (), None):
        sample(state, "cuda:0", GIB, throttle_reasons=nothing)
        assert card_texts(card).held == ""


# --- drops ---------------------------------------------------------------------------------------------------------


def test_a_drag_survives_its_way_and_anything_else_is_refused():
    targets = ("x", "vgg:features.0", "block 0", "ü")
    assert decode(encode(targets)) == targets
    for rubbish in (b"\xff\xfe", b"{", b'{"a": 1}', b"[1, 2]", b""):
        data = QMimeData()
        data.setData(MIME, rubbish)
        assert decode(data) == ()
    plain = QMimeData()
    plain.setText("hello")
    assert decode(plain) == ()


def test_the_verdict_counts_only_what_has_to_move_and_each_tensor_once():
    state = state_with(CPU, CUDA, VGPU)
    show(state, mlp(), tensor("x", "cuda:0", 3))
    sample(state, "cuda:0", 24 * GIB - 6 * MIB)
    assert verdict(state, ("mlp", "mlp:hidden", "x"), "cuda:0").words == "fits, 0 B left"
    sample(state, "cuda:0", 24 * GIB - 4 * MIB)
    refused = verdict(state, ("mlp",), "cuda:0")
    assert (refused.allowed, refused.words) == (False, "does not fit, needs 2.0 MiB more")
    assert verdict(state, ("mlp:hidden",), "cuda:0").words == "fits, 1.0 MiB left"
    already = verdict(state, ("x",), "cuda:0")
    assert (already.allowed, already.nothing_to_do, already.words) == (False, True, "already here")


def test_cached_memory_counts_as_free_and_unknown_memory_is_said():
    state = state_with(CPU, CUDA, VGPU)
    show(state, mlp())
    sample(state, "cuda:0", 24 * GIB)
    allocator(state, "cuda:0", workspace=0, allocated=0, reserved=8 * MIB, context=0)
    assert verdict(state, ("mlp",), "cuda:0").words == "fits, 2.0 MiB left"
    assert verdict(state, ("mlp",), "vgpu:0") == (True, "free memory is not known", False)


def test_gone_objects_and_unusable_devices_have_a_verdict_too():
    state = state_with(CPU, OLD)
    show(state, mlp())
    assert verdict(state, ("gone",), "cpu").words == "nothing to move"
    assert verdict(state, ("mlp",), "nvml:2").words == "cannot hold tensors"
    assert verdict(state, ("mlp",), "cuda:9").words == "cannot hold tensors"


def test_dragging_over_a_card_shows_what_would_happen_on_every_card(qtbot: QtBot):
    state = state_with(CPU, CUDA)
    show(state, mlp())
    sample(state, "cuda:0", 24 * GIB - MIB)
    panel = panel_for(qtbot, state)
    card = panel.items["cuda:0"]
    assert drag_over(card, encode(("mlp",)))
    assert card.verdict is not None
    assert card.verdict.words == "does not fit, needs 5.0 MiB more"
    assert panel.items["cpu"].verdict == (False, "already here", True)
    QApplication.sendEvent(card, QDragLeaveEvent())
    assert card.verdict is None


def test_dropping_says_what_was_dropped_where(qtbot: QtBot):
    state = state_with(CPU, CUDA)
    show(state, mlp())
    panel = panel_for(qtbot, state)
    with qtbot.waitSignal(panel.dropped) as dropped:
        drop_on(panel.items["cuda:0"], encode(("mlp", "mlp:out")))
    assert dropped.args == [("mlp", "mlp:out"), "cuda:0"]
    assert panel.items["cuda:0"].verdict is None


# --- the panel -----------------------------------------------------------------------------------------------------


def test_clicking_a_card_chooses_it(qtbot: QtBot):
    panel = panel_for(qtbot, state_with(CPU, CUDA))
    with qtbot.waitSignal(panel.selected) as selected:
        qtbot.mouseClick(panel.items["cuda:0"], LEFT)
    assert selected.args == ["cuda:0"]
    assert panel.items["cuda:0"].is_selected
    assert not panel.items["cpu"].is_selected


@pytest.mark.parametrize(("count", "cards"), [(1, 1), (4, 4), (5, 4)])
def test_up_to_four_devices_are_cards_and_from_the_fifth_on_rows(qtbot: QtBot, count: int, cards: int):
    panel = panel_for(qtbot, many(count))
    kinds = [type(item) for item in panel.items.values()]
    assert kinds == [DeviceCard] * cards + [DeviceRow] * (count - cards)


def test_a_row_has_room_for_its_whole_id_and_all_bars_are_in_line(qtbot: QtBot):
    panel = panel_for(qtbot, many(17))
    rows = [item for item in panel.items.values() if isinstance(item, DeviceRow)]
    widest = max(QFontMetrics(font(Role.STRONG)).horizontalAdvance(row.texts.id) for row in rows)
    assert any(row.texts.id[-2:].isdigit() for row in rows), "two digits are what this is about"
    assert len({row.bar.geometry().left() for row in rows}) == 1
    assert rows[0].bar.geometry().left() >= 11 + widest + 6, "edge, id, gap"


def test_with_many_devices_cards_give_way_until_all_can_be_seen(qtbot: QtBot):
    panel = panel_for(qtbot, many(9))
    kinds = [type(item) for item in panel.items.values()]
    assert 0 < kinds.count(DeviceCard) < 4
    last = list(panel.items.values())[-1]
    assert last.mapTo(panel, QPoint(0, last.height())).y() <= panel.height()
    for height, cards in ((800, 6), (1200, 9)):
        panel.resize(276, height)
        assert [type(item) for item in panel.items.values()].count(DeviceCard) == cards


def test_a_device_that_stays_keeps_its_card(qtbot: QtBot):
    from devexplorer.core.devices.catalog import Catalog

    state = state_with(CPU, CUDA)
    panel = panel_for(qtbot, state)
    panel.choose("cpu")
    kept = panel.items["cpu"]
    state.set_catalog(Catalog((CPU, VGPU)))
    panel.refresh_devices()
    assert list(panel.items) == ["cpu", "vgpu:0"]
    assert panel.items["cpu"] is kept
    assert kept.is_selected


def test_new_readings_reach_card_and_bar(qtbot: QtBot):
    state = state_with(CPU, CUDA)
    panel = panel_for(qtbot, state)
    sample(state, "cuda:0", 12 * GIB, utilization_percent=50.0)
    panel.refresh_texts()
    card = panel.items["cuda:0"]
    assert card.texts.used == "12.0"
    assert [segment.part for segment in card.bar.segments] == ["used", "free"]
    assert "12.0 of 24.0 GiB, util 50 %" in card.spoken()


def test_a_reading_that_changes_no_text_and_no_pixel_paints_nothing(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch):
    state = state_with(CPU, CUDA)
    sample(state, "cuda:0", 12 * GIB)
    panel = panel_for(qtbot, state)
    panel.grab()
    painted: list[str] = []
    for kind in (DeviceCard, MemoryBar):
        monkeypatch.setattr(kind, "update", lambda self, *_: painted.append(type(self).__name__))
    sample(state, "cuda:0", 12 * GIB + 1)
    panel.refresh_texts()
    assert painted == []
    assert panel.items["cuda:0"].bar.segments[0].bytes == 12 * GIB + 1, "what hovering says is the newest"
    sample(state, "cuda:0", 12 * GIB + 1, utilization_percent=50.0)
    panel.refresh_texts()
    assert painted == ["DeviceCard"], "only the text"


def test_a_compact_row_is_not_painted_for_readings_that_only_its_words_say(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
):
    state = state_with(CPU, *(replace(CUDA, id=f"cuda:{number}", nvml_index=number) for number in range(8)))
    panel = panel_for(qtbot, state)
    row = list(panel.items.values())[-1]
    assert isinstance(row, DeviceRow)
    sample(state, row.device_id, GIB, utilization_percent=5.0, power_w=60.0)
    panel.refresh_texts()
    painted: list[str] = []
    monkeypatch.setattr(DeviceRow, "update", lambda self, *_: painted.append(self.device_id))
    sample(state, row.device_id, GIB, utilization_percent=5.0, power_w=75.0)
    panel.refresh_texts()
    assert painted == []
    assert "75" in row.spoken()
    sample(state, row.device_id, GIB, utilization_percent=6.0, power_w=75.0)
    panel.refresh_texts()
    assert painted == [row.device_id]


@pytest.mark.parametrize("count", [2, 9])
def test_new_readings_paint_the_part_again_that_has_the_readings(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, count: int
):
    state = many(count)
    panel = panel_for(qtbot, state)
    item = list(panel.items.values())[-1]
    sample(state, item.device_id, GIB, utilization_percent=5.0)
    panel.refresh_texts()
    before, stale = item.grab().toImage(), item.grab()
    updated: list[QRegion] = []
    monkeypatch.setattr(type(item), "update", lambda _, *region: updated.extend(map(QRegion, region)))
    sample(state, item.device_id, 12 * GIB, utilization_percent=95.0)
    panel.refresh_texts()
    [region] = updated
    assert not region.contains(QPoint(20, 15)), "its id stays as it is"
    after = item.grab().toImage()
    assert after != before
    for part in (region, QRegion(item.bar.geometry())):
        item.render(stale, part.boundingRect().topLeft(), part)
    assert stale.toImage() == after


@pytest.mark.parametrize("count", [2, 9])
def test_a_card_whose_clocks_are_held_down_has_a_sign_and_keeps_its_size(qtbot: QtBot, count: int):
    state = many(count)
    panel = panel_for(qtbot, state)
    last = list(panel.items)[-1]
    item = panel.items[last]
    sample(state, last, GIB // 2)
    panel.refresh_texts()
    before, height = item.grab().toImage(), item.height()
    sample(state, last, GIB // 2, throttle_reasons=("power cap",))
    panel.refresh_texts()
    assert item.height() == height
    assert item.grab().toImage() != before
    assert "Throttled by: power cap." in item.spoken()


def test_mig_instances_are_rows_below_their_card_a_little_to_the_right(qtbot: QtBot):
    card = msgspec.structs.replace(CUDA, id="nvml:0", usable=False, reason="in MIG mode")
    other = msgspec.structs.replace(CUDA, id="cuda:1")
    instances = [msgspec.structs.replace(CUDA, id=name, parent="nvml:0") for name in ("cuda:0", "nvml:0/1")]
    panel = panel_for(qtbot, state_with(CPU, instances[0], other, card, instances[1]))
    QApplication.processEvents()
    assert list(panel.items) == ["cpu", "cuda:1", "nvml:0", "cuda:0", "nvml:0/1"]
    assert [type(item) for item in panel.items.values()] == [DeviceCard] * 3 + [DeviceRow] * 2
    boxes = [item.geometry() for item in panel.items.values()]
    assert all(a.bottom() < b.top() for a, b in pairwise(boxes))
    assert {box.left() - boxes[2].left() for box in boxes[3:]} == {14}
    assert {box.right() for box in boxes} == {boxes[0].right()}
    with qtbot.waitSignal(panel.selected) as selected:
        qtbot.mouseClick(panel.items["cuda:0"], LEFT)
    assert selected.args == ["cuda:0"]


def test_an_instance_whose_card_is_not_listed_stands_for_itself(qtbot: QtBot):
    panel = panel_for(qtbot, state_with(CPU, msgspec.structs.replace(CUDA, parent="nvml:9")))
    assert isinstance(panel.items["cuda:0"], DeviceCard)


def test_a_machine_without_gpu_is_offered_two_virtual_ones(qtbot: QtBot):
    state = state_with(CPU, problems=(Problem("No NVIDIA driver is loaded."),))
    panel = panel_for(qtbot, state)
    assert not panel.offer.isVisible(), "while the engine starts it may still find some"
    state.apply(ENGINE)
    panel.refresh_texts()
    assert panel.offer.isVisible()
    assert panel.offer_words.text() == (
        "No GPU found. No NVIDIA driver is loaded. Add two virtual GPUs to try everything, simulated."
    )
    with qtbot.waitSignal(panel.virtual_offered):
        qtbot.mouseClick(panel.offer_button, LEFT)
