"""Numbers and times as people read them: bytes, seconds, rates, durations, moments. The one home of each conversion;
pure functions, any thread, no Qt."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from devexplorer.core.base.errors import BadInput

MISSING = "—"
"""What is shown for "not available"."""

LONGEST_SECONDS = 1e8
"""Three years; what is longer is a typing error, and more than some systems can wait."""

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def joined(separator: str, *parts: str | None) -> str:
    """The parts that are not empty, in one text.

    >>> joined(", ", "4 cards", "", "simulated")
    '4 cards, simulated'
    """
    return separator.join(filter(None, parts))


def bytes_text(count: int | float | None, digits: int = 2) -> str:
    """`553433088` -> `527.79 MiB`; bytes below 1 KiB without decimals."""
    if count is None:
        return MISSING
    value, unit = float(count), 0
    while round(abs(value), digits if unit else 0) >= 1024 and unit < len(_BINARY) - 1:  # 1024.00 KiB is 1.00 MiB
        value, unit = value / 1024, unit + 1
    return f"{int(count)} B" if unit == 0 else f"{value:.{digits}f} {_BINARY[unit]}"


def parse_bytes(text: str) -> int:
    """`1.5 GiB` -> `1610612736`, `1,024 KiB` -> `1048576`; a number alone is in bytes. `BadInput` with what would be
    right: a comma before anything but three digits could be a decimal one."""
    number = r"([0-9]{1,3}(?:,[0-9]{3}){1,5}(?:\.[0-9]*)?|[0-9]{1,18}(?:\.[0-9]*)?|\.[0-9]+)"
    result = re.fullmatch(number + r"\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if result is None:
        raise BadInput(f"'{text.strip()}' is not a size; enter for example 512 MiB or 1.5 GiB")
    return round(float(result[1].replace(",", "")) * (1 << 10 * " kmgt".index(result[2] or " ")))


def seconds_text(seconds: float | None, simulated: bool = False) -> str:
    """`0.0431` -> `43.1 ms`, or `43.1 ms (simulated)`."""
    if simulated:
        return f"{seconds_text(seconds)} (simulated)"
    if seconds is None or math.isnan(seconds):
        return MISSING
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if abs(seconds * factor) < 999.5:  # 999.5 ms would be shown as 1e+03 ms
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s" if abs(seconds) < 99.95 else f"{seconds:.0f} s"


def running_text(seconds: float | None) -> str:
    """How long something runs: `0:00:42`, `2 days, 3:04:05`."""
    return MISSING if seconds is None else str(timedelta(seconds=int(seconds)))


def left_text(seconds: float) -> str:
    """How long something still takes: `8 s left`, `11 min left`."""
    return f"{math.ceil(seconds)} s left" if seconds < 100 else f"{math.ceil(seconds / 60)} min left"


def range_text(low: str, high: str) -> str:
    """Two texts of one kind as a range, the unit once: `280 ms` and `450 ms` -> `280 to 450 ms`."""
    if MISSING in (low, high):
        return MISSING
    if low == high:
        return low
    (first, _, unit), (_, _, other) = low.partition(" "), high.partition(" ")
    return f"{first if unit == other else low} to {high}"


def number_text(value: float | None, digits: int = 3) -> str:
    """Significant digits without exponent for everyday sizes: `101.3` -> `101`, `8.123` -> `8.12`, `0.0123` ->
    `0.0123`."""
    if value is None or math.isnan(value):
        return MISSING
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))  # of 9.999 that of 10.0
    if magnitude >= digits:
        return f"{value:,.0f}"
    return f"{value:.{min(digits - 1 - magnitude, 9)}f}" if magnitude > -6 else f"{value:.{digits - 1}e}"


RATE_UNITS = {
    "TFLOP/s": ("TFLOP/s", "GFLOP/s", "MFLOP/s"),
    "GB/s": ("GB/s", "MB/s", "kB/s"),
    "s": ("s", "ms", "µs"),
}
"""The unit in which a rate or a time is kept, and those in which it is shown, each a thousandth of the one before."""
SMALLEST = 0.1
"""Of less than that the next unit is taken."""


def rate_texts(unit: str, *values: float | None) -> tuple[str, ...]:
    """Numbers of three digits in the unit that the first one asks for, then that unit: `"TFLOP/s", 0.0008` -> `0.800`,
    `GFLOP/s`."""
    first, shown = values[0] or 0.0, RATE_UNITS.get(unit, (unit,))
    power = next((at for at in range(len(shown)) if first * 1000**at >= SMALLEST), len(shown) - 1) if first else 0
    return (*(number_text(None if value is None else value * 1000**power) for value in values), shown[power])


def percent_text(share: float) -> str:
    """`71 %` of 0.71."""
    return f"{100 * share:.0f} %"


def flops_text(tflops: float | None) -> str:
    """`0.0008` TFLOP/s -> `0.800 GFLOP/s`."""
    return MISSING if tflops is None else " ".join(rate_texts("TFLOP/s", tflops))


def flops_cell_text(tflops: float | None) -> str:
    """For a column of FLOP/s: `101 T`, `0.800 G`."""
    return flops_text(tflops).removesuffix("FLOP/s")


def shape_text(shape: tuple[int, ...] | None) -> str:
    """`(64, 3, 3)` -> `64×3×3`; a scalar is `()`, an unknown shape `—`."""
    if shape is None:
        return MISSING
    return "×".join(map(str, shape)) if shape else "()"


def count_text(count: int, noun: str) -> str:
    """`count_text(1, "parameter")` -> `1 parameter`; otherwise with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def list_text(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def objects_text(titles: Sequence[str]) -> str:
    """`mlp`, or `3 objects`."""
    return titles[0] if len(titles) == 1 else f"{len(titles)} objects"


def bytes_by_device_text(sizes: Mapping[str, int]) -> str:
    """`2.4 MiB on vgpu:0, 32 B on cpu`."""
    return ", ".join(f"{bytes_text(size)} on {device}" for device, size in sizes.items())


def sentence(text: str) -> str:
    """`text` as a sentence: a capital first letter and an end. Reasons arrive without either.

    >>> sentence("no driver is installed")
    'No driver is installed.'
    """
    words = text.strip()
    return words and f"{words[:1].upper()}{words[1:]}" + ("" if words.endswith((".", "?", "!")) else ".")


def printable(text: str) -> str:
    """Names and messages come from outside: what would move the cursor or colour the screen is replaced."""
    return "".join(character if character.isprintable() else "?" for character in text)


def parse_seconds(text: str | float, what: str = "") -> float:
    """Return a duration in seconds: above 0, at most `LONGEST_SECONDS`. `what` names it in the message."""
    name = f"{what}: " if what else ""
    try:
        seconds = float(text if str(text).isascii() else "")  # float takes digits of every script
    except ValueError:
        raise BadInput(f"{name}'{text}' is not a number of seconds; write for example 2 or 0.5") from None
    if not 0 < seconds <= LONGEST_SECONDS:  # not so for nan either
        raise BadInput(f"{name}{text} seconds is not a duration; enter a number above 0, {LONGEST_SECONDS:.0f} at most")
    return seconds


def parse_count(text: str, what: str) -> int:
    """Return a whole number above 0; `what` names it in the message."""
    if not re.fullmatch(r"\+?\d{1,18}", text.strip(), re.ASCII) or int(text) < 1:
        wrong = (
            "is too large"
            if re.fullmatch(r"\+?[1-9]\d{18,}", text.strip(), re.ASCII)
            else "is not a whole number above 0"
        )
        raise BadInput(f"{what} '{text}' {wrong}; write for example 100")
    return int(text)


Clock = Callable[[], float]
"""Tells the seconds, as `time.time` and `time.monotonic` do; whoever measures is given one."""


def moment_text(time_unix_s: float) -> str:
    """Day and time on this machine's clock: `2026-11-20 13:04:05`."""
    return datetime.fromtimestamp(time_unix_s).strftime("%Y-%m-%d %H:%M:%S")


def elapsed_text(seconds: float) -> str:
    """`3723.4` -> `1:02:03`; below an hour `2:03`. A clock that was set back makes it 0, never less."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
