"""Plots of a report as inline SVG, drawn by us: bars with their middle 60 %, and curves. Pure functions, any thread; no
torch.

Colours and fonts come from the report's style sheet (classes `d0` to `d7` for devices), so that one picture is right in
light and dark. Every text is escaped here; nothing is loaded from anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from devexplorer.core.base import number_text

WIDTH = 880
_LEFT, _RIGHT, _ROW = 330, 130, 26
_PLOT_LEFT, _PLOT_RIGHT, _PLOT_HEIGHT = 62, 30, 260
_LETTERS = 46
"""What fits left of a bar; the whole text is in its title."""


class Bar(NamedTuple):
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


def bars(rows: Sequence[Bar], unit: str, name: str) -> str:
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
