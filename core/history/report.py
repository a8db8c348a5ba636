"""Runs of the history as one HTML file with plots, for a colleague or an issue: nothing is loaded from anywhere. Any
thread; no torch.

Every name is escaped: runs can come from other people. Light and dark follow the reader's system.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from devexplorer.core.base import MISSING, BadInput, Clock, count_text, number_text, seconds_text
from devexplorer.core.base.html_page import page, table, table_row
from devexplorer.core.benchmark.conditions import all_conditions, moment_text
from devexplorer.core.benchmark.kind import BenchmarkKind, Figure, figures, kind_name, kind_of, title
from devexplorer.core.benchmark.statistics import noise_verdict
from devexplorer.core.feature import benchmark_kinds
from devexplorer.core.history.compare import Comparison, compare
from devexplorer.core.history.export import write_runs
from devexplorer.core.history.filter import device_of
from devexplorer.core.records import StoredRun

STYLE = """\
:root { --d0: #6A707A; --d1: #0072B2; --d2: #916700; --d3: #007F5C; --d4: #A1308A; --d5: #003281; --d6: #82370E;
  --d7: #776935; }
@media screen and (prefers-color-scheme: dark) {
  :root { --d0: #8A8F98; --d1: #4FA3E0; --d2: #F2B33D; --d3: #2FC597; --d4: #E39CC4; --d5: #8CCBF2; --d6: #F07F3C;
    --d7: #F0E442; }
}
figure { margin: 0 0 16px; } figcaption { color: var(--dim); font-size: 12px; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--text); } svg .tick { fill: var(--dim); font-size: 11px; }
svg .value { font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); } .whisker { stroke: var(--text); stroke-width: 1.2; }
.bar { fill: var(--c); stroke: var(--c); } .bar.simulated { fill-opacity: .15; stroke-dasharray: 4 3; }
.curve { fill: none; stroke: var(--c); stroke-width: 1.4; } .curve.simulated { stroke-dasharray: 5 4; }
.dot { fill: var(--c); }
.d0 { --c: var(--d0); } .d1 { --c: var(--d1); } .d2 { --c: var(--d2); } .d3 { --c: var(--d3); }
.d4 { --c: var(--d4); } .d5 { --c: var(--d5); } .d6 { --c: var(--d6); } .d7 { --c: var(--d7); }
"""
"""Of plots, light and dark: colours of devices as in `gui/widgets/theme.py`."""
MOST_CURVES = 12
MOST_ROWS = 400
"""Rows of a table of figures; a sweep can have thousands of shapes, which the plot shows."""


def write_report(
    path: Path,
    runs: Sequence[StoredRun],
    *,
    names: bool = True,
    clock: Clock = time.time,
) -> str:
    """Write the file; see `write_runs`."""

    def write(file: Path, chosen: Sequence[StoredRun]) -> None:
        file.write_text(report_html(chosen, now_unix_s=clock()), encoding="utf-8", errors="replace")

    return write_runs(path, runs, names, write)


def report_html(runs: Sequence[StoredRun], *, now_unix_s: float) -> str:
    """The page. Runs of one kind are compared with the first of them, where that makes sense."""
    colours = _Colours()
    simulated = sum(run.result.simulated for run in runs)
    sections = [
        _section(kind, of_kind, colours)
        for name, kind in benchmark_kinds().items()
        if (of_kind := [run for run in runs if kind_name(run.result) == name])
    ]
    note = ""
    if simulated:
        note = (
            f'<p class="note">Simulated runs: {simulated} of {len(runs)}. Their times come from the model of a virtual'
            " GPU, not from a card.</p>"
        )
    header = (
        f"<header><h1>Benchmark report</h1>"
        f"<p>{count_text(len(runs), 'run')}, written by DevExplorer on {moment_text(now_unix_s)}. "
        f"Bars show medians; the line across their end goes from the 20th to the 80th percentile.</p>{note}</header>"
    )
    return page("Benchmark report", f"{header}{''.join(sections)}{_conditions(runs)}", STYLE)


class _Colours:
    """One class of colour per device, in the order in which devices come; the CPU has its own."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str | None], int] = {}

    def of(self, run: StoredRun) -> int:
        """0 for a CPU, 1 to 7 and round again for others."""
        if device_of(run) == "cpu":
            return 0
        key = (run.conditions.host, device_of(run), run.conditions.uuid)
        return (self._known.setdefault(key, len(self._known)) % 7) + 1


def _section(kind: BenchmarkKind[Any, Any], runs: Sequence[StoredRun], colours: _Colours) -> str:
    plots = _curve_plots(runs, colours, kind.across) if kind.across else _bar_plots(runs, colours)
    return f"<section><h2>{kind.title}</h2>{plots}{_figures(kind, runs)}{_comparison(runs)}</section>"


def run_label(run: StoredRun) -> str:
    """The name of a run in a legend: `#3 Tesla T4: matmul 1024×1024×1024 float32 burst`."""
    return f"#{run.id} {_device_name(run)}: {title(run.result.spec).partition(' ')[2]}"


def _bar_plots(runs: Sequence[StoredRun], colours: _Colours) -> str:
    by_unit: dict[str, list[ReportBar]] = {}
    for run in runs:
        for figure in figures(run.result):
            label = run_label(run) if not figure.label else f"#{run.id} {_device_name(run)}: {figure.label}"
            bar = ReportBar(
                label, figure.spread.p20, figure.spread.median, figure.spread.p80, colours.of(run), figure.simulated
            )
            by_unit.setdefault(figure.unit, []).append(bar)
    plots = "".join(f"<figure>{bars(rows, unit, f'{unit} of each run')}</figure>" for unit, rows in by_unit.items())
    sampled = [
        (run, figure)
        for run in runs
        for figure in figures(run.result)
        if figure.quantity == "tflops" and len(figure.samples) > 1
    ]
    if not sampled:
        return plots
    lines = []
    for run, figure in sampled[:MOST_CURVES]:
        last = len(figure.samples) - 1
        points = tuple((index / last * 100, value) for index, value in enumerate(figure.samples))
        lines.append(Curve(run_label(run), points, colours.of(run), figure.simulated))
    drawn = curves(lines, "TFLOP/s", "% of the run", "Samples in the order of measurement", from_zero=False)
    return (
        f"{plots}<figure>{drawn}<figcaption>Samples in the order in which they were measured. The axis does not begin"
        f" at 0.{_left_out(len(sampled))}</figcaption></figure>"
    )


def _curve_plots(runs: Sequence[StoredRun], colours: _Colours, across: str) -> str:
    lines: list[Curve] = []
    for run in runs:
        series: dict[tuple[str, ...], list[Figure]] = {}
        for figure in figures(run.result):
            way = (figure.key[0], *figure.key[2:]) if len(figure.key) > 1 else ()
            series.setdefault(way, []).append(figure)
        for way, own_figures in series.items():
            label = ", ".join([run_label(run), *(part for part in way if part)])
            points = tuple((figure.place, figure.spread.median) for figure in own_figures if figure.place is not None)
            is_curve = kind_of(run.result).is_curve(run.result)
            lines.append(Curve(label, points, colours.of(run), own_figures[0].simulated, joined=is_curve))
    if not lines:
        return ""
    unit = figures(next(run for run in runs if figures(run.result)).result)[0].unit
    drawn = curves(lines[:MOST_CURVES], unit, across, f"{unit} over {across}", logarithmic=True)
    return f"<figure>{drawn}<figcaption>{_left_out(len(lines))}</figcaption></figure>"


def _device_name(run: StoredRun) -> str:
    return run.conditions.device_name or device_of(run)


def _left_out(count: int) -> str:
    return f" {count - MOST_CURVES} more are in the table." if count > MOST_CURVES else ""


def _figures(kind: BenchmarkKind[Any, Any], runs: Sequence[StoredRun]) -> str:
    rows = [(run, figure) for run in runs for figure in figures(run.result)]
    shown = [(run, figure, kind.datasheet(run.result, run.conditions, figure)) for run, figure in rows[:MOST_ROWS]]
    body = "".join(_figure_row(*row) for row in shown)
    more = (
        f"<p>{len(rows) - MOST_ROWS:,} more rows are left out; the CSV export has all.</p>"
        if len(rows) > MOST_ROWS
        else ""
    )
    names = ("run", "device", "what", ">median", ">p20", ">p80", "unit", ">datasheet", ">noise", ">measured for",
             "remarks")  # fmt: skip
    note = f"<p>{kind.datasheet_note}</p>" if kind.datasheet_note and any(row[-1] for row in shown) else ""
    return table(names, body) + more + note


def _figure_row(run: StoredRun, figure: Figure, datasheet: float | None) -> str:
    result, known = run.result, figure.spread
    share = f"{number_text(100 * known.median / datasheet, 2)} % of {number_text(datasheet)}" if datasheet else MISSING
    noise = MISSING if figure.noise is None else f"{number_text(figure.noise * 100, 2)} % {noise_verdict(figure.noise)}"
    stopped = ""
    if result.stopped:
        stopped = f"stopped early ({result.failure})" if result.failure else "stopped early"
    marks = [
        "simulated" if figure.simulated else "",
        "imported" if run.imported else "",
        stopped,
        "VALUES WERE WRONG" if figure.verified is False else "",
        *run.tags,
    ]
    what = ", ".join(part for part in (title(result.spec).partition(" ")[2], figure.label) if part)
    spreads = [number_text(value) for value in (known.median, known.p20, known.p80)]
    cells = (f"#{run.id}", _device_name(run), what, *spreads, figure.unit, share, noise, seconds_text(figure.seconds))
    return table_row(
        (*cells, ", ".join(mark for mark in marks if mark)), numbers=(3, 4, 5, 7, 8, 9), simulated=figure.simulated
    )


def _comparison(runs: Sequence[StoredRun]) -> str:
    if len(runs) < 2:
        return ""
    try:
        comparison = compare(runs)
    except BadInput as error:
        return f"<h3>Compared</h3><p>Not compared: {escape(str(error))}.</p>"
    rows = [
        table_row(
            (f"#{run.id}", row.label, f"{cell.difference.ratio:.3f}", cell.interval or MISSING, cell.words),
            numbers=(2, 3),
        )
        for row in comparison.rows
        for run, cell in zip(comparison.runs[1:], row.cells[1:], strict=True)
        if cell is not None and cell.difference is not None
    ]
    compared = table(("run", "what", ">ratio", ">95 % interval", "in words"), "".join(rows[:MOST_ROWS]))
    remarks = "".join(f"<li>{escape(text)}</li>" for text in comparison.remarks)
    return f"<h3>Compared with #{comparison.runs[0].id}</h3>{compared}<ul>{remarks}</ul>{_differing(comparison)}"


def _differing(comparison: Comparison) -> str:
    if not comparison.differing:
        return "<p>No known condition differs.</p>"
    body = "".join(table_row((row.label, *row.values)) for row in comparison.differing)
    return f"<h3>What differs</h3>{table(('', *(f'#{run.id}' for run in comparison.runs)), body)}"


def _conditions(runs: Sequence[StoredRun]) -> str:
    columns = [all_conditions(run.conditions) for run in runs]
    body = "".join(table_row((rows[0].label, *(row.value for row in rows))) for rows in zip(*columns, strict=True))
    return f"<section><h2>Conditions</h2>{table(('', *(f'#{run.id}' for run in runs)), body)}</section>"


# Plots of a report as inline SVG, drawn by us: bars with their middle 60 %, and curves. Pure functions, any thread;
# no torch.
#
# Colours and fonts come from the report's style sheet (classes `d0` to `d7` for devices), so that one picture is
# right in light and dark. Every text is escaped here; nothing is loaded from anywhere.

WIDTH = 880
_LEFT, _RIGHT, _ROW = 330, 130, 26
_PLOT_LEFT, _PLOT_RIGHT, _PLOT_HEIGHT = 62, 30, 260
_LETTERS = 46
"""What fits left of a bar; the whole text is in its title."""


class ReportBar(NamedTuple):
    """One line of a bar plot."""

    label: str
    low: float
    value: float
    high: float
    colour: int
    """0 to 7: the device's class."""
    simulated: bool = False


class Curve(NamedTuple):
    """One line of a curve plot."""

    label: str
    points: tuple[tuple[float, float], ...]
    colour: int
    dashed: bool = False
    """Simulated."""
    joined: bool = True
    """False: points only, because the axis does not say all that tells them apart."""


def bars(rows: Sequence[ReportBar], unit: str, name: str) -> str:
    """Horizontal bars from 0 on, each with a whisker from p20 to p80 and its figure. `name` is read aloud by screen
    readers."""
    top = max((row.high for row in rows), default=0.0)
    step = nice_step(top, 4)
    end = math.ceil(top / step - 1e-9) * step
    height = len(rows) * _ROW + 34
    scale = (WIDTH - _LEFT - _RIGHT) / end
    out = [_head(height, name)]
    for number in range(round(end / step) + 1):
        x = _LEFT + number * step * scale
        out.append(f'<line class="grid" x1="{x:.1f}" y1="4" x2="{x:.1f}" y2="{height - 26}"/>')
        out.append(
            f'<text class="tick" x="{x:.1f}" y="{height - 10}"'
            f' text-anchor="middle">{tick_text(number * step, step)}</text>'
        )
    out.append(f'<text class="tick" x="{WIDTH}" y="{height - 10}" text-anchor="end">{escape(unit)}</text>')
    for number, row in enumerate(rows):
        y = 8 + number * _ROW
        middle = y + 8
        classes = f"bar d{row.colour % 8}" + (" simulated" if row.simulated else "")
        low, high = _LEFT + row.low * scale, _LEFT + row.high * scale
        text = number_text(row.value) + (" simulated" if row.simulated else "")
        out.append(
            f"<g><title>{escape(row.label)}: {text} {escape(unit)}</title>"
            f'<text class="label" x="{_LEFT - 10}" y="{middle + 4}"'
            f' text-anchor="end">{escape(_shortened(row.label))}</text>'
            f'<rect class="{classes}" x="{_LEFT}" y="{y}" width="{max(row.value * scale, 0.5):.1f}" height="16"/>'
        )
        if high - low >= 1:
            ends = "".join(
                f'<line class="whisker" x1="{x:.1f}" y1="{middle - 4}" x2="{x:.1f}" y2="{middle + 4}"/>'
                for x in (low, high)
            )
            out.append(f'<line class="whisker" x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}"/>{ends}')
        out.append(
            f'<text class="value" x="{max(high, _LEFT + row.value * scale) + 8:.1f}" y="{middle + 4}">{text}</text></g>'
        )
    return "".join([*out, "</svg>"])


def curves(
    lines: Sequence[Curve], unit: str, across: str, name: str, *, logarithmic: bool = False, from_zero: bool = True
) -> str:
    """Lines over a common axis; `across` says what it is. `logarithmic`: the horizontal axis doubles at equal steps.

    Lines of one device have one colour; letters at their ends tell them apart.
    """
    xs = [_across(x, logarithmic) for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    bottom, step, end = _vertical(min(ys, default=0.0), max(ys, default=1.0), from_zero)
    left, right = min(xs, default=0.0), max(xs, default=1.0)
    if right <= left:
        left, right = left - 0.5, right + 0.5
    legend = 18 * len(lines)
    height = _PLOT_HEIGHT + legend + 50
    x_scale = (WIDTH - _PLOT_LEFT - _PLOT_RIGHT) / (right - left)
    y_scale = (_PLOT_HEIGHT - 20) / (end - bottom)
    out = [_head(height, name), f'<text class="tick" x="0" y="10">{escape(unit)}</text>']
    for number in range(round((end - bottom) / step) + 1):
        value = bottom + number * step
        y = _PLOT_HEIGHT - (value - bottom) * y_scale
        out.append(f'<line class="grid" x1="{_PLOT_LEFT}" y1="{y:.1f}" x2="{WIDTH - _PLOT_RIGHT}" y2="{y:.1f}"/>')
        out.append(
            f'<text class="tick" x="{_PLOT_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick_text(value, step)}</text>'
        )
    for x, text in _across_ticks(left, right, logarithmic):
        place = _PLOT_LEFT + (x - left) * x_scale
        out.append(f'<text class="tick" x="{place:.1f}" y="{_PLOT_HEIGHT + 18}" text-anchor="middle">{text}</text>')
    out.append(
        f'<text class="tick" x="{WIDTH - _PLOT_RIGHT}" y="{_PLOT_HEIGHT + 36}"'
        f' text-anchor="end">{escape(across)}</text>'
    )
    drawn = [
        sorted(
            (_PLOT_LEFT + (_across(x, logarithmic) - left) * x_scale, _PLOT_HEIGHT - (y - bottom) * y_scale)
            for x, y in line.points
        )
        for line in lines
    ]
    ends = _apart([places[-1][1] if places else 0.0 for places in drawn])
    for number, (line, places, end_y) in enumerate(zip(lines, drawn, ends, strict=True)):
        colour, letter = f"d{line.colour % 8}", chr(ord("a") + number % 26)
        classes = f"curve {colour}" + (" simulated" if line.dashed else "")
        out.append(f"<g><title>{escape(line.label)}</title>")
        if line.joined:
            out.append(f'<polyline class="{classes}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
        if not line.joined or len(places) <= 60:
            out += [f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in places]
        out.append(f'<text class="label" x="{WIDTH - _PLOT_RIGHT + 10}" y="{end_y + 4:.1f}">{letter}</text>')
        y = _PLOT_HEIGHT + 54 + 18 * number
        out.append(f'<line class="{classes}" x1="{_PLOT_LEFT}" y1="{y - 4}" x2="{_PLOT_LEFT + 28}" y2="{y - 4}"/>')
        word = " simulated" if line.dashed else ""
        out.append(
            f'<text class="label" x="{_PLOT_LEFT + 38}" y="{y}">{letter} '
            f" {escape(_shortened(line.label, 110))}{word}</text></g>"
        )
    return "".join([*out, "</svg>"])


def nice_step(top: float, count: int) -> float:
    """A step of 1, 2 or 5 times a power of ten, so that about `count` of them reach `top`.

    >>> nice_step(97.0, 4), nice_step(0.031, 4)
    (50.0, 0.01)
    """
    if not top > 0:
        return 1.0
    rough = top / count
    power = 10.0 ** math.floor(math.log10(rough))
    factor = next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    return float(f"{factor * power:.6g}")


def tick_text(value: float, step: float) -> str:
    """With as many decimals as the step has.

    >>> tick_text(40.0, 20.0), tick_text(0.5, 0.25), tick_text(1500.0, 500.0)
    ('40', '0.50', '1,500')
    """
    decimals = max(-math.floor(math.log10(step) + 1e-9), 0)
    if decimals > 6 or abs(value) >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.{decimals + (step * 10**decimals % 1 > 1e-6)}f}"


def _apart(places: Sequence[float], least: float = 13.0) -> list[float]:
    """The same places, moved down where two letters would lie on each other."""
    result = list(places)
    above = -math.inf
    for number in sorted(range(len(places)), key=lambda number: places[number]):
        above = result[number] = max(result[number], above + least)
    return result


def _vertical(low: float, high: float, from_zero: bool) -> tuple[float, float, float]:
    """Where the axis begins, its step and its end."""
    if from_zero or high <= low:
        step = nice_step(high, 4)
        return 0.0, step, max(math.ceil(high / step - 1e-9), 1) * step
    step = nice_step(high - low, 4)
    bottom = math.floor(low / step + 1e-9) * step
    return bottom, step, bottom + max(math.ceil((high - bottom) / step - 1e-9), 1) * step


def _across(x: float, logarithmic: bool) -> float:
    return math.log2(x) if logarithmic else x


def _across_ticks(left: float, right: float, logarithmic: bool) -> list[tuple[float, str]]:
    if logarithmic:
        whole = range(math.ceil(left - 1e-9), math.floor(right + 1e-9) + 1)
        every = max(1, math.ceil(len(whole) / 9))
        return [(float(power), _power_text(power)) for power in whole[::every]]
    step = nice_step(right - left, 6)
    first = math.ceil(left / step - 1e-9)
    return [
        (number * step, tick_text(number * step, step)) for number in range(first, math.floor(right / step + 1e-9) + 1)
    ]


def _power_text(power: int) -> str:
    """`2^20` as `1 Mi`: bytes and sides alike."""
    if power < 10:
        return f"{2.0**power:g}"
    return f"{2 ** (power % 10)} {('', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei')[min(power // 10, 6)]}"


def _shortened(text: str, letters: int = _LETTERS) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _head(height: int, name: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{escape(name, quote=True)}"><title>{escape(name)}</title>'
    )
