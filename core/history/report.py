"""Runs of the history as one HTML file with plots, for a colleague or an issue: nothing is loaded from anywhere. Any
thread; no torch.

Every name is escaped: runs can come from other people. Light and dark follow the reader's system.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from devexplorer.core.base import MISSING, BadInput, Clock, count_text, number_text, seconds_text
from devexplorer.core.base.html_page import page, table, table_row
from devexplorer.core.benchmark.figures import Figure
from devexplorer.core.benchmark.kinds import KINDS, figures, kind_name, kind_of, title
from devexplorer.core.benchmark.kinds.condition_rows import all_conditions, moment_text
from devexplorer.core.benchmark.kinds.kind import BenchmarkKind
from devexplorer.core.benchmark.statistics import noise_verdict
from devexplorer.core.history.compare import Comparison, compare
from devexplorer.core.history.export import write_runs
from devexplorer.core.history.filter import device_of
from devexplorer.core.history.report_plots import Bar, Curve, bars, curves
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
        for name, kind in KINDS.items()
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
    by_unit: dict[str, list[Bar]] = {}
    for run in runs:
        for figure in figures(run.result):
            label = run_label(run) if not figure.label else f"#{run.id} {_device_name(run)}: {figure.label}"
            bar = Bar(
                label, figure.spread.p20, figure.spread.median, figure.spread.p80, colours.of(run), figure.simulated
            )
            by_unit.setdefault(figure.unit, []).append(bar)
    plots = "".join(f"<figure>{bars(rows, unit, f'{unit} of each run')}</figure>" for unit, rows in by_unit.items())
    sampled = [(run, figure) for run in runs for figure in figures(run.result) if len(figure.samples) > 1]
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
