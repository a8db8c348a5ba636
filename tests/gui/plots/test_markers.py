"""Labels of markers never overlap, newer ones come first."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRectF

from devexplorer.gui.plots.markers import GAP_PX, MarkerLine, PlacedLabel, place_labels

WIDTH = 600.0


def place(
    *lines: tuple[float, str], rows: int = 3, taken: tuple[QRectF, ...] = (), width: float = WIDTH
) -> list[PlacedLabel]:
    """With letters of 6 pixels."""
    return place_labels(
        [MarkerLine(at, text, "#000000") for at, text in lines],
        width_px=width,
        rows=rows,
        text_width=lambda text: 6.0 * len(text),
        elide=lambda text, room: text if 6 * len(text) <= room else text[: max(int(room // 6) - 1, 0)] + "…",
        taken=taken,
    )


def test_a_label_is_right_of_its_line_and_left_of_it_at_the_right_edge() -> None:
    [first, last] = place((100, "build mlp"), (590, "mlp → vgpu:1"))

    assert first.rect.left() == 104
    assert last.rect.right() == 586


def test_neighbours_stack_in_rows_and_the_newest_has_the_first() -> None:
    labels = place((100, "one → cuda:0"), (105, "two → cuda:0"), (110, "three → cuda:0"))

    assert [label.rect.top() for label in labels] == [30, 15, 0]


def test_what_has_no_room_is_cut_short_and_then_left_out() -> None:
    cut = place((100, "a long name → cuda:0"), (170, "b"), rows=1)
    assert [label.text for label in cut] == ["a long nam…", "b"]

    assert [label.text for label in place((100, "a long name → cuda:0"), (120, "b"), rows=1)] == ["b"]


def test_a_label_with_no_room_at_the_right_is_left_of_its_line_before_it_is_cut() -> None:
    """At 2560 pixels a label was `vgg16-b…` with 700 empty pixels left of its line."""
    labels = place((300, "vgg16-bn → vgpu:0"), (340, "mlp → vgpu:1"), rows=1)
    assert [label.text for label in labels] == ["vgg16-bn → vgpu:0", "mlp → vgpu:1"]
    assert labels[0].rect.right() == 296


def test_labels_of_a_row_are_in_the_order_of_their_lines() -> None:
    labels = place((518, "resnet18 → vgpu:0"), (521, "mlp → vgpu:15"), (535, "matmul vgpu:0"), rows=2)
    assert [label.text for label in labels] == ["mlp → vgpu:15", "matmul vgpu:0"]

    assert [label.text for label in place((497, "first → vgpu:0"), (500, "second one → vgpu:15"), rows=1)] == [
        "second one → vgpu:15"
    ]


def test_a_marker_that_scrolls_out_moves_no_other_label() -> None:
    lines = [(20.0, "first thing"), (40.0, "second thing"), (60.0, "third thing")]
    before = place(*lines)
    after = place(*[(at - 30, text) for at, text in lines])

    assert [label.text for label in after] == ["second thing", "third thing"]
    assert [label.rect.top() for label in after] == [label.rect.top() for label in before[1:]]


def test_labels_keep_clear_of_what_is_taken() -> None:
    guide = QRectF(90, 0, 100, 15)
    [label] = place((100, "mlp → cuda:1"), taken=(guide,))
    assert not label.rect.intersects(guide)


@given(
    st.lists(st.tuples(st.floats(-50, 650), st.text("abc→: ", min_size=1, max_size=30)), max_size=25),
    st.integers(1, 3),
)
def test_no_two_labels_ever_overlap_or_leave_the_plot(lines: list[tuple[float, str]], rows: int) -> None:
    labels = place(*sorted(lines), rows=rows)

    assert not any(a.rect.intersects(b.rect) for a, b in combinations(labels, 2))
    assert all(label.rect.left() >= 0 and label.rect.right() <= WIDTH + 0.001 for label in labels)


@given(st.lists(st.tuples(st.floats(-50, 650), st.text("abc→: ", min_size=1, max_size=30)), max_size=25))
def test_no_line_comes_as_high_as_the_label_of_a_guide(lines: list[tuple[float, str]]) -> None:
    guide = QRectF(6, 0, 200, 15)
    for label in place(*sorted(lines), taken=(guide,)):
        beside = (label.rect.left() - GAP_PX, label.rect.right() + GAP_PX)
        assert label.rect.top() > 0 or not any(guide.left() < at < guide.right() - 0.001 for at in beside)
