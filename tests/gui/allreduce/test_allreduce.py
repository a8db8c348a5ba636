"""The Allreduce page: what its form asks for, what it refuses, and a run in table, curve and words."""

from __future__ import annotations

import pytest
from fakes.bench_runs import A10S, CPU, NOW, T4S, begin, finish, point, spread
from fakes.host import hosted
from fakes.look_records import state_with
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from devexplorer.core.allreduce.kind import AllReduceResult, AllReduceRow, AllReduceSpec
from devexplorer.core.records import DeviceInfo
from devexplorer.core.session.state import State
from devexplorer.gui.allreduce.page import AllReducePage
from devexplorer.gui.benchmark.page import BenchmarkPanel

LEFT = Qt.MouseButton.LeftButton
KIB, MIB = 1 << 10, 1 << 20


def row(size: int, rate: float, *, simulated: bool = False) -> AllReduceRow:
    return AllReduceRow(
        bytes=size,
        algorithm_gb_per_s=spread(rate / 1.5),
        bus_gb_per_s=spread(rate),
        operation_seconds=spread(size / rate / 1e9),
        iterations=10,
        verified=True,
        simulated=simulated,
    )


def page_of(qtbot: QtBot, *infos: DeviceInfo) -> tuple[State, BenchmarkPanel, AllReducePage]:
    state = state_with(*infos)
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), 1280, 260)
    qtbot.mouseClick(panel.rail.choices["allreduce"], LEFT)
    page = panel.page
    assert isinstance(page, AllReducePage)
    return state, panel, page


def asked(qtbot: QtBot, panel: BenchmarkPanel, page: AllReducePage) -> AllReduceSpec:
    with qtbot.waitSignal(panel.start_requested) as started:
        qtbot.mouseClick(page.start_button, LEFT)
    [spec] = started.args[0]
    assert isinstance(spec, AllReduceSpec)
    return spec


def test_on_the_cpu_the_number_of_ranks_is_asked_for(qtbot: QtBot) -> None:
    _, panel, page = page_of(qtbot, CPU)
    assert page.ranks_edit.isVisible()
    page.ranks_edit.setText("3")
    page.sizes_edit.setText("4K:16K, 1M")
    assert page.hint.full_text == "3 ranks, 4 sizes, 1 s of measuring"
    spec = asked(qtbot, panel, page)
    assert (spec.devices, spec.ranks, spec.sizes) == (("cpu",), 3, (4 * KIB, 8 * KIB, 16 * KIB, MIB))


@pytest.mark.parametrize("cards", [A10S, T4S])
def test_cards_have_a_rank_each(qtbot: QtBot, cards: tuple[DeviceInfo, ...]) -> None:
    _, panel, page = page_of(qtbot, CPU, *cards)
    assert page.devices.chosen == tuple(card.id for card in cards)
    assert not page.ranks_edit.isVisible()
    spec = asked(qtbot, panel, page)
    assert (spec.devices, spec.ranks, spec.own_ranks) == (tuple(card.id for card in cards), None, 2)


@pytest.mark.parametrize(
    ("chosen", "changes", "said"),
    [
        (["cpu"], {"ranks_edit": "1"}, "two ranks or more"),
        (["cpu"], {"ranks_edit": "x"}, "ranks"),
        (["cpu"], {"dtype_edit": "complex64"}, "is not measured"),
        (["cpu"], {"sizes_edit": "8M:4M"}, "has nothing in it"),
        (["vgpu:0"], {}, "two virtual GPUs or more"),
        (["cpu", "vgpu:0", "vgpu:1"], {}, "cannot be in one world"),
    ],
)
def test_what_the_form_refuses(qtbot: QtBot, chosen: list[str], changes: dict[str, str], said: str) -> None:
    _, _, page = page_of(qtbot, CPU, *T4S)
    page.devices.choose(chosen)
    for field, text in changes.items():
        getattr(page, field).setText(text)
    assert said in page.message.full_text
    assert not page.start_button.isEnabled()


def test_a_run_is_followed_size_by_size(qtbot: QtBot) -> None:
    state, panel, page = page_of(qtbot, CPU, *T4S)
    spec = AllReduceSpec(devices=("vgpu:0", "vgpu:1"), sizes=(4 * KIB, MIB, 64 * MIB))
    rows = tuple(row(size, rate, simulated=True) for size, rate in zip(spec.sizes, (0.7, 20.0, 11.0), strict=True))
    begin(state, 1, spec, simulated=True)
    panel.refresh()
    assert page.summary.headline.text() == "Nothing is measured yet."
    point(state, 1, part=rows[0], done=0.3, text="4 KiB", simulated=True)
    panel.refresh()
    assert [cell.text for cell in page.table.rows[0].cells] == ["4 KiB", "0.700", "0.467", "5.85 µs", "correct"]
    result = AllReduceResult(
        run=1, spec=spec, rows=rows, backend="gloo", stopped=False, simulated=True, seconds=1.0, verified=True
    )
    finish(state, 1, result)
    panel.refresh()
    assert page.summary.headline.text() == "20.0 GB/s at 1 MiB"
    assert "Bus bandwidth of the sum of one float32 tensor of each of 2 ranks." in page.summary.words.text()
    assert "simulated" in page.summary.facts.text()
    [series] = page.curve.series
    assert series.simulated
    assert [point[0] for point in series.points] == [float(size) for size in spec.sizes]


def test_a_wrong_value_is_said_with_its_rank(qtbot: QtBot) -> None:
    state, panel, page = page_of(qtbot, CPU)
    spec = AllReduceSpec(devices=("cpu",), ranks=4, sizes=(4 * KIB,))
    reason = "rank 2 has 3 wrong values of 1,024 after an all-reduce of 4.00 KiB"
    wrong = AllReduceRow(bytes=4 * KIB, verified=False, reason=reason)
    begin(state, 1, spec)
    result = AllReduceResult(
        run=1, spec=spec, rows=(wrong,), backend="gloo", stopped=True, simulated=False, seconds=0.0, verified=False,
        failure=reason,
    )  # fmt: skip
    finish(state, 1, result)
    panel.refresh()
    assert page.summary.warning.text() == f"✕ {reason}."
    assert page.summary.headline.text() == "Nothing was measured."
    assert page.table.rows[0].cells[-1].text == "✕ wrong"
