"""How the devices are connected: picture and matrix."""

from __future__ import annotations

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import CPU, CUDA, ENGINE, VGPU, server, server_card, server_topology, state_with
from PySide6.QtCore import QPoint, QRectF, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.records import Affinity, DeviceInfo, PeerLink, Problem, Topology
from devexplorer.core.session.state import State
from devexplorer.core.telemetry.topology_text import Pairs
from devexplorer.core.virtual.device.machine import topology
from devexplorer.gui.topology.page import TopologyPanel
from devexplorer.gui.topology.picture import DEVICE_PX, LABEL_PX, LINE_PX, arrange, fabrics, name_lines

LEFT = Qt.MouseButton.LeftButton


def panel_for(qtbot: QtBot, state: State, width: int = 1264, height: int = 280) -> TopologyPanel:
    panel = hosted(qtbot, lambda _: TopologyPanel(state), width, height)
    QApplication.processEvents()
    return panel


def virtual(spec: str) -> State:
    found = [(f"vgpu:{index}", profile) for index, profile in enumerate(parse_virtual(spec))]
    state = state_with(
        CPU, *(DeviceInfo(id=name, kind="virtual", name=profile.name, simulated=True) for name, profile in found)
    )
    state.apply(topology(found))
    return state


def cells(panel: TopologyPanel) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in panel.model.rows]


def names(count: int) -> list[str]:
    return [f"cuda:{index}" for index in range(count)]


# --- nothing to show -----------------------------------------------------------------------------------------------


def test_one_gpu_has_no_links_and_what_is_near_it_is_said(qtbot: QtBot) -> None:
    state = server(1)
    state.apply(ENGINE)
    panel = panel_for(qtbot, state)
    assert panel.is_empty
    assert (
        panel.empty.sentence.text()
        == "cuda:0 is the only GPU here, so there are no links between devices to show. CPUs near it: 0-31,64-95. NUMA"
        " node: 0."
    )
    with qtbot.waitSignal(panel.empty.chosen):
        qtbot.mouseClick(panel.empty.button, LEFT)


def test_without_a_gpu_virtual_ones_are_offered_once_there_is_an_engine(qtbot: QtBot) -> None:
    state = state_with(CPU)
    panel = panel_for(qtbot, state)
    assert panel.empty.sentence.text().startswith("There is no GPU")
    assert not panel.empty.button.isEnabled()
    state.apply(ENGINE)
    panel.refresh()
    assert panel.empty.button.isEnabled()
    state.apply(msgspec.structs.replace(ENGINE, virtual_unavailable="this torch is too old"))
    panel.refresh()
    assert not panel.empty.button.isVisible()


def test_a_panel_that_is_resized_after_a_device_has_left_waits_for_its_refresh(qtbot: QtBot) -> None:
    """The engine was restarted while another page was in front."""
    state = virtual("2x Tesla T4")
    panel = panel_for(qtbot, state)
    assert not panel.is_empty
    state.set_catalog(Catalog((CPU,)))
    panel.resize(700, 240)
    QApplication.processEvents()
    panel.refresh()
    assert panel.is_empty


def test_unknown_links_are_explained(qtbot: QtBot) -> None:
    problem = Problem("this driver cannot tell how cards are joined", field="topology")
    panel = panel_for(qtbot, state_with(CPU, server_card(0), server_card(1), problems=(problem,)))
    assert panel.is_empty
    assert (
        panel.empty.sentence.text()
        == "The links between 2 devices are unknown. This driver cannot tell how cards are joined."
    )


# --- the matrix ----------------------------------------------------------------------------------------------------


def test_the_matrix_has_a_code_for_each_pair_and_what_is_near(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(4, nvlinks=0))
    assert cells(panel) == [
        ["X", "PIX", "SYS", "SYS", "0", "0-31,64-95"],
        ["PIX", "X", "SYS", "SYS", "0", "0-31,64-95"],
        ["SYS", "SYS", "X", "PIX", "1", "32-63,96-127"],
        ["SYS", "SYS", "PIX", "X", "1", "32-63,96-127"],
    ]
    words = panel.model.rows[0].cells[2].tip
    assert "cuda:0 and cuda:2: system (SYS)" in words
    assert "peer atomics: the chipset does not support it" in words
    assert "PIX" in panel.legend.text()
    assert "NV#" not in panel.legend.text()


def test_the_matrix_shows_peer_access_when_asked_to(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(2, nvlinks=0))
    panel.choice.setFocus()
    for _ in range(3):
        qtbot.keyClick(panel.choice, Qt.Key.Key_Down)
    assert panel.choice.currentText() == "peer atomics"
    assert cells(panel)[0][:2] == ["X", "no"]
    qtbot.keyClick(panel.choice, Qt.Key.Key_Up)
    assert cells(panel)[0][:2] == ["X", "ok"]


def test_a_cell_marks_its_pair_in_the_picture(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(8))
    index = panel.model.index(2, 5)
    qtbot.mouseClick(panel.table.viewport(), LEFT, pos=panel.table.visualRect(index).center())
    assert panel.picture.marked == {"cuda:2", "cuda:5"}


def test_the_matrix_can_be_copied_as_text(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(2))
    qtbot.mouseClick(panel.copy_button, LEFT)
    lines = QApplication.clipboard().text().splitlines()
    assert lines[0].split() == ["cuda:0", "cuda:1", "CPU", "affinity", "NUMA", "node"]
    assert lines[1].split() == ["cuda:0", "X", "NV18", "0-31,64-95", "0"]


def test_devices_that_come_and_go_change_the_columns(qtbot: QtBot) -> None:
    state = server(4)
    panel = panel_for(qtbot, state)
    state.set_catalog(Catalog((CPU, server_card(0), server_card(3))))
    panel.refresh()
    assert cells(panel) == [["X", "NV18", "0", "0-31,64-95"], ["NV18", "X", "1", "32-63,96-127"]]
    assert list(panel.picture.layout_now.devices) == ["cuda:0", "cuda:3"]
    state.apply(msgspec.structs.replace(server_topology(4, nvlinks=0)))
    panel.refresh()
    assert cells(panel)[0][1] == "SYS"


def test_simulated_links_are_marked_wherever_they_stand(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, virtual("2x H200"))
    assert cells(panel) == [["X", "NV18~", "—", "—"], ["NV18~", "X", "—", "—"]]
    assert "simulated" in panel.model.rows[0].cells[1].tip
    assert "not modelled" in panel.model.rows[0].cells[2].tip
    assert "simulated" in panel.legend.text()
    layout = panel.picture.layout_now
    assert [socket.words for socket in layout.sockets] == ["simulated"]
    assert all(wire.simulated for wire in layout.wires)


def test_real_and_virtual_devices_share_the_matrix_and_are_not_joined(qtbot: QtBot) -> None:
    state = server(2)
    real = [device.info for device in state.devices.values()]
    gpus = [(f"vgpu:{index}", profile) for index, profile in enumerate(parse_virtual("2x T4"))]
    state.set_catalog(Catalog((*real, *(msgspec.structs.replace(VGPU, id=name) for name, _ in gpus))))
    state.apply(topology(gpus))
    panel = panel_for(qtbot, state)
    assert cells(panel)[0][:4] == ["X", "NV18", "—", "—"]
    assert "connection unknown" in panel.model.rows[0].cells[2].tip
    assert [socket.title for socket in panel.picture.layout_now.sockets] == [
        "NUMA node 0",
        "NUMA node 1",
        "virtual GPUs",
    ]


def test_what_only_real_devices_have_takes_no_room_among_virtual_ones(qtbot: QtBot) -> None:
    invented, real = panel_for(qtbot, virtual("2x H200")), panel_for(qtbot, server(2))
    assert [invented.table.isColumnHidden(column) for column in range(4)] == [False, False, True, True]
    assert not any(real.table.isColumnHidden(column) for column in range(4))
    assert invented.splitter.sizes()[1] < real.splitter.sizes()[1]


def test_a_mig_instance_is_where_its_card_is(qtbot: QtBot) -> None:
    state = server(2)
    instance = msgspec.structs.replace(CUDA, id="cuda:2", parent="cuda:1")
    state.set_catalog(Catalog((*(device.info for device in state.devices.values()), instance)))
    panel = panel_for(qtbot, state)
    assert [row.key for row in panel.model.rows] == ["cuda:0", "cuda:1"]


# --- the picture ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 8, 16])
@pytest.mark.parametrize("width", [300, 700, 1600])
def test_devices_are_below_their_node_and_nothing_overlaps(count: int, width: int) -> None:
    layout = arrange(names(count), Pairs([server_topology(count)]), (), width, 240)
    boxes = list(layout.devices.values())
    assert not any(a.intersects(b) for at, a in enumerate(boxes) for b in boxes[at + 1 :])
    assert all(box.width() >= 60 for box in boxes)
    whole = QRectF(0, 0, max(layout.width, width) + 1, max(layout.height, 240) + 1)
    assert all(whole.contains(box) for box in (*boxes, *(socket.box for socket in layout.sockets)))
    for node, socket in enumerate(layout.sockets):
        below = [
            box for name, box in layout.devices.items() if socket.box.left() <= box.center().x() <= socket.box.right()
        ]
        assert len(below) == count // 2, f"node {node}"
        assert all(box.top() > socket.box.bottom() for box in below)


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("A100-SXM4-80GB", 200, ["A100-SXM4-80GB"]),
        ("A100-SXM4-80GB", 76, ["A100-SXM4-", "80GB"]),
        ("H100 80GB HBM3", 76, ["H100 80GB", "HBM3"]),
        ("A100", 4, ["A100"]),
    ],
)
def test_a_name_that_does_not_fit_in_a_line_takes_two(name: str, width: int, lines: list[str]) -> None:
    assert name_lines(name, width) == lines


def test_devices_are_higher_where_their_names_take_two_lines() -> None:
    heights = [
        {box.height() for box in arrange(names(8), Pairs(()), names(8), 784, 180, 60, whole).devices.values()}
        for whole in (80, 112)
    ]
    assert heights == [{DEVICE_PX}, {DEVICE_PX + LINE_PX}]


def test_devices_of_one_switch_hang_below_it() -> None:
    layout = arrange(names(8), Pairs([server_topology(8, nvlinks=0)]), (), 900, 240)
    assert [group for _, group in layout.switches] == [
        ("cuda:0", "cuda:1"),
        ("cuda:2", "cuda:3"),
        ("cuda:4", "cuda:5"),
        ("cuda:6", "cuda:7"),
    ]
    assert not [wire for wire in layout.wires if wire.kind == "nvlink"]
    assert len([wire for wire in layout.wires if wire.kind == "system"]) == 1


def test_links_of_one_kind_between_all_are_one_bar_and_others_are_arcs() -> None:
    all_alike = Pairs([server_topology(16)])
    assert fabrics(names(16), all_alike) == ([tuple(names(16))], [])
    [bar] = [wire for wire in arrange(names(16), all_alike, (), 1200, 240).wires if wire.kind == "nvlink"]
    assert bar.label == "NV18 between any two"
    assert bar.label_at is not None
    assert bar.label_at.y() - LABEL_PX / 2 >= bar.legs[0].y() + 2  # it hides no leg
    ring = [("cuda:0", "cuda:1", 2), ("cuda:1", "cuda:2", 1), ("cuda:2", "cuda:3", 2), ("cuda:0", "cuda:3", 1)]
    links = tuple(PeerLink(a=a, b=b, code=f"NV{count}", nvlinks=count) for a, b, count in ring)
    pairs = Pairs([Topology(source="nvml", links=links)])
    assert fabrics(names(4), pairs)[0] == []
    arcs = [wire for wire in arrange(names(4), pairs, (), 800, 240).wires if wire.kind == "nvlink"]
    assert sorted(wire.label for wire in arcs) == ["NV1", "NV1", "NV2", "NV2"]
    thick = {wire.label: wire.width for wire in arcs}
    assert thick["NV2"] > thick["NV1"]


def test_a_pair_on_a_bar_uses_the_part_between_its_legs() -> None:
    layout = arrange(names(8), Pairs([server_topology(8)]), (), 900, 240)
    [bar] = [wire for wire in layout.wires if wire.kind == "nvlink"]
    bottom = layout.devices["cuda:2"].bottom()
    used = bar.between("cuda:5", "cuda:2", bottom).boundingRect()
    left, right = (layout.devices[name].center().x() for name in ("cuda:2", "cuda:5"))
    assert (used.left(), used.right()) == pytest.approx((left, right))
    assert (used.top(), used.bottom()) == pytest.approx((bottom, bar.legs[0].y()))


def test_devices_without_a_node_have_a_place_too() -> None:
    pairs = Pairs(
        [
            Topology(
                source="nvml",
                links=(PeerLink(a="cuda:0", b="cuda:1", code="PHB"),),
                affinities=(Affinity(device="cuda:0"),),
            )
        ]
    )
    [socket] = arrange(names(2), pairs, (), 600, 200).sockets
    assert (socket.title, socket.words) == ("CPU", "NUMA node not known")
    assert arrange([], pairs, (), 600, 200).devices == {}


def test_the_item_under_the_pointer_is_named(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(2))
    picture, layout = panel.picture, panel.picture.layout_now
    device = picture.tip_at(layout.devices["cuda:1"].center().toPoint())
    assert device.splitlines() == ["cuda:1: NVIDIA H100 80GB HBM3", "NUMA node 1", "CPUs near: 32-63,96-127"]
    [nvlink] = [wire for wire in layout.wires if wire.kind == "nvlink"]
    where = nvlink.path.pointAtPercent(0.3).toPoint()
    assert picture.tip_at(where).startswith("cuda:0 and cuda:1: NVLink (NV18)\nPCIe between them: system\nNVLinks: 18")
    qtbot.mouseClick(picture, LEFT, pos=where)
    assert picture.marked == {"cuda:0", "cuda:1"}
    qtbot.mouseClick(picture, LEFT, pos=QPoint(1, 1))
    assert picture.marked == frozenset()
    assert picture.tip_at(QPoint(1, 1)) == ""


def test_sixteen_devices_can_be_scrolled_to_in_a_narrow_window(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(16), 900)
    assert panel.area.horizontalScrollBar().maximum() > 0
    assert panel.picture.width() >= panel.picture.layout_now.width
    assert panel.table.horizontalScrollBar().maximum() > 0
