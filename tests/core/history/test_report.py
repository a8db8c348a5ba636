"""The report: one self-contained file with every figure, escaped names, and simulated values marked."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from fakes import stored_runs
from fakes.disk import full_disk
from fakes.runs import BEGAN, around, bandwidth, matmul, model, samples, scaling, stored, sweep

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.history.report import (
    MOST_ROWS,
    Curve,
    ReportBar,
    bars,
    curves,
    nice_step,
    report_html,
    write_report,
)
from devexplorer.core.records import StoredRun
from devexplorer.core.sweep.kind import SweepCell

RUNS = (
    stored(matmul(samples(100, seed=1)), 1, tags=("baseline",)),
    stored(matmul(samples(105, seed=2)), 2, sm_clock_mhz=around(1500.0)),
    stored(matmul(simulated=True, device="vgpu:0"), 3),
    stored(sweep(), 4),
    stored(bandwidth(), 5),
    stored(scaling(), 6),
    stored(model(), 7),
)
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Tags in order, checked to be closed, with their text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page(*runs: StoredRun) -> tuple[str, Page]:
    text = report_html(runs, now_unix_s=BEGAN)
    return text, Page(text)


def test_every_kind_has_its_section_its_plot_and_its_figures() -> None:
    text, found = page(*RUNS)
    titles = re.findall("<h2>(.*?)</h2>", text)
    assert titles == ["Matrix products", "Sweeps", "Bandwidth", "Scaling", "Model steps", "Conditions"]
    drawings = re.findall("<svg .*?</svg>", text, re.DOTALL)
    assert len(drawings) == 8, "bars and samples of products, two curves, two units of scaling, two of the model"
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    words = " ".join(found.words)
    for run in RUNS:
        assert f"#{run.id}" in words
    assert "% faster, more than the noise of either run" in words
    assert "baseline" in words
    assert "1500 MHz" in words


def test_what_the_datasheet_says_stands_beside_the_figures_that_it_is_about() -> None:
    _, found = page(
        stored_runs.stored(stored_runs.matmul(798.0), 1), stored_runs.stored(stored_runs.bandwidth(), 2)
    )  # fmt: skip
    shares = [words for words in found.words if re.fullmatch(r"\d+ % of [\d,]+", words)]
    assert shares == ["81 % of 989", "87 % of 2,400"], "copies of other sizes and ways say nothing of the memory"
    assert "reads and writes every byte" in " ".join(found.words)


def test_it_needs_nothing_from_anywhere() -> None:
    text, found = page(*RUNS)
    assert not [
        name
        for _, attributes in found.tags
        for name in attributes
        if name in ("src", "href", "xlink:href") or name.startswith("on")
    ]
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in found.tags}
    assert "url(" not in text
    assert "@import" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


EVIL = "\"><script>alert(1)</script><b x='&amp;"


def test_every_name_is_escaped() -> None:
    names = {
        "device_name": EVIL,
        "uuid": EVIL,
        "host": EVIL,
        "driver_version": EVIL,
        "torch_version": EVIL,
        "device": EVIL,
    }
    others = {"other_processes": (EVIL,), "throttle_reasons": (EVIL,), "git_revision": EVIL, "python_version": EVIL}
    first = stored(
        matmul(samples(100), dtype=EVIL, device=EVIL, stopped=True, failure=EVIL), 1, tags=(EVIL,), **names, **others
    )
    second = msgspec.structs.replace(first, id=2, result=matmul(samples(90), dtype=EVIL + "2"))
    third = stored(model(target=EVIL), 3)
    fourth = stored(bandwidth(EVIL), 4, **names)
    text = report_html([first, second, third, fourth], now_unix_s=BEGAN)
    assert "<script" not in text
    assert "<b x" not in text
    assert EVIL in " ".join(Page(text).words), "it is shown as what it is"
    for drawing in re.findall("<svg .*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_simulated_is_marked_wherever_its_figures_stand() -> None:
    text, found = page(*RUNS)
    assert "Simulated runs: 2 of 7." in text
    rows = [attributes for tag, attributes in found.tags if tag == "tr" and attributes.get("class") == "simulated"]
    assert len(rows) == 4, "the product, and three figures of scaling"
    assert "bar d2 simulated" in text
    assert "a simulation against a measurement" in text
    assert "simulated" not in page(RUNS[0])[0].partition("</style>")[2].replace("<th", "").partition("Conditions")[0]
    assert "Simulated runs: 1 of 1." in page(RUNS[2])[0]


def test_what_cannot_be_compared_is_said() -> None:
    text, _ = page(stored(model(), 1), stored(model(target="mlp"), 2))
    assert "Not compared: resnet18 and mlp are different models" in text


def test_a_thousand_shapes_are_drawn_and_the_table_is_cut_with_words() -> None:
    cells = tuple(SweepCell(64 + number, 64, 64, around(1.0 + number), 1) for number in range(1000))
    text, _ = page(stored(msgspec.structs.replace(sweep(), cells=cells), 1))
    assert text.count("<tr") < MOST_ROWS + 50
    assert "600 more rows are left out" in text
    assert text.count("<circle") == 1000, "points and no line, since their sides differ"
    assert "<polyline" not in text


def test_a_run_without_a_figure_makes_no_empty_plot() -> None:
    empty = msgspec.structs.replace(sweep(), cells=(SweepCell(8, 8, 8, None, 0, "out of memory"),))
    text, _ = page(stored(empty, 1))
    assert "<svg" not in text


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert (
        write_report(path, RUNS, clock=lambda: BEGAN)
        == f"7 runs written to {path}. 2 simulated runs among them, marked as such."
    )
    whole = path.read_text(encoding="utf-8")
    assert whole == report_html(RUNS, now_unix_s=BEGAN)
    assert "node7" in whole
    with full_disk(4096), pytest.raises(Unavailable, match="Choose another folder or free some space"):
        write_report(path, RUNS)
    assert path.read_text(encoding="utf-8") == whole
    write_report(path, RUNS, names=False)
    assert "node7" not in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(BadInput, match="choose some first"):
        write_report(path, [])


# --- plots


def lengths(drawing: str) -> list[float]:
    root = ElementTree.fromstring(drawing)
    return [float(rect.attrib["width"]) for rect in root.iter("rect")]


def test_bars_are_as_long_as_their_figures() -> None:
    one, two = lengths(bars([ReportBar("a", 9, 10, 11, 0), ReportBar("b", 19, 20, 21, 1, True)], "TFLOP/s", "name"))
    assert two == pytest.approx(2 * one, abs=0.2)


def test_a_figure_without_a_spread_has_no_whisker() -> None:
    assert "whisker" not in bars([ReportBar("a", 5, 5, 5, 0)], "s", "name")
    assert bars([ReportBar("a", 4, 5, 6, 0)], "s", "name").count("whisker") == 3


def test_a_logarithmic_axis_doubles_at_equal_steps() -> None:
    drawing = curves(
        [Curve("a", ((1024, 1.0), (2048, 2.0), (4096, 4.0)), 0)], "GB/s", "bytes", "name", logarithmic=True
    )
    points = [
        tuple(map(float, point.split(",")))
        for point in ElementTree.fromstring(drawing).find(".//polyline").attrib["points"].split()
    ]  # type: ignore[union-attr]
    (x1, y1), (x2, y2), (x3, y3) = points
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert (y2 - y3) == pytest.approx(2 * (y1 - y2), abs=0.3)


@pytest.mark.parametrize("value", [1e-9, 0.003, 1.0, 97.0, 12345.0, 1e9])
def test_steps_are_one_two_or_five(value: float) -> None:
    step = nice_step(value, 4)
    assert 1.6 <= value / step <= 4 * (1 + 1e-9)
    assert f"{step:e}"[0] in "125"


@pytest.mark.parametrize("points", [((1.0, 5.0),), ((1.0, 5.0), (2.0, 5.0)), ((1.0, 0.0),)])
def test_one_point_and_a_flat_line_are_drawn(points: tuple[tuple[float, float], ...]) -> None:
    for from_zero in (True, False):
        drawing = curves([Curve("a", points, 0)], "s", "x", "name", from_zero=from_zero)
        ElementTree.fromstring(drawing)
        assert "nan" not in drawing
