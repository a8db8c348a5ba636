"""Spans of histories as files: CSV and Parquet, all or nothing. Works on copies, on whatever thread writes; no Qt.

Both have a row per device and moment: `time` (ISO 8601, UTC), `time_unix_s`, `device`, `simulated`, `seconds` (0: one
reading; else the row sums up the readings of so many seconds from half of them before its time on), then the
quantities, with the unit in the column's name. Where a row sums up, a quantity has three columns: `_min`, `_mean`,
`_max`. What is not known is empty.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from devexplorer.core.base import MISSING, Unavailable, count_text, files
from devexplorer.core.telemetry.history import BY_ID, Floats, Window
from devexplorer.core.telemetry.metrics import UNITS

UNIT_NAMES = UNITS | {"tflops": "TFLOP/s"}
"""Units as the metadata of a Parquet file has them."""


class Extract(NamedTuple):
    """What is exported of one device."""

    device: str
    simulated: bool
    metrics: tuple[str, ...]
    """Ids of the columns of `table`."""
    table: Window


def write_csv(path: Path, extracts: Sequence[Extract]) -> str:
    """Write the file; returns what was written, in words. Raises `Unavailable` when it could not be written."""
    metrics, summed_up = _metrics(extracts), _sums_up(extracts)
    rows = 0
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["time", "time_unix_s", "device", "simulated", "seconds", *_names(metrics, summed_up)])
        for extract in extracts:
            simulated, seconds = str(extract.simulated).lower(), _number(extract.table.seconds)
            columns = _columns(extract, metrics, summed_up)
            for time_s, values in zip(
                extract.table.times.tolist(),
                np.column_stack([extract.table.times, *columns])[:, 1:].tolist(),
                strict=True,
            ):
                moment = datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")
                writer.writerow([moment, f"{time_s:.3f}", extract.device, simulated, seconds, *map(_number, values)])
                rows += 1
    return _words(path, rows, extracts)


def write_parquet(path: Path, extracts: Sequence[Extract]) -> str:
    """Write the file; returns what was written, in words. Raises `Unavailable` when it could not be written.

    The schema's metadata has `unit:COLUMN` for each quantity, each field `unit`; `simulated_devices` names what was
    modelled.
    """
    # publishes no types; tens of megabytes: only for an export
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    metrics, summed_up = _metrics(extracts), _sums_up(extracts)
    counts = [len(extract.table.times) for extract in extracts]
    times = np.concatenate([extract.table.times for extract in extracts] or [np.empty(0)])
    names = _names(metrics, summed_up)
    units = {name: UNIT_NAMES[BY_ID[metric].unit] for metric in metrics for name in _names([metric], summed_up)}
    fields = [
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("time_unix_s", pa.float64(), metadata={"unit": "s"}),
        pa.field("device", pa.string()),
        pa.field("simulated", pa.bool_()),
        pa.field("seconds", pa.float64(), metadata={"unit": "s"}),
        *(pa.field(name, pa.float64(), metadata={"unit": units[name]}) for name in names),
    ]
    simulated = ", ".join(dict.fromkeys(extract.device for extract in extracts if extract.simulated))
    metadata = {"source": "DevExplorer", "simulated_devices": simulated} | {
        f"unit:{name}": unit for name, unit in units.items()
    }
    per_device = [_columns(extract, metrics, summed_up) for extract in extracts]
    arrays = [
        pa.array(np.round(times * 1e6).astype(np.int64), type=fields[0].type),
        pa.array(times),
        pa.array(np.repeat([extract.device for extract in extracts], counts), type=pa.string()),
        pa.array(np.repeat(np.array([extract.simulated for extract in extracts], dtype=bool), counts)),
        pa.array(np.repeat(np.array([extract.table.seconds for extract in extracts], dtype=np.float64), counts)),
        *(pa.array(np.concatenate(column), from_pandas=True) for column in zip(*per_device, strict=True)),
    ]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))
    with replacing(path) as temporary:
        parquet.write_table(table, temporary)
    return _words(path, len(times), extracts)


def write_bytes(path: Path, data: bytes) -> str:
    """Write a file that is ready (a picture); returns what was written, in words. Raises `Unavailable` when it could
    not be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)
    return f"The picture is in {path}."


def write_table(path: Path, rows: Iterable[Sequence[str]]) -> str:
    """Write the texts of a table as CSV, the titles first; returns what was written, in words. Raises `Unavailable`
    when it could not be written."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([text.replace(MISSING, "") for text in row] for row in rows)
    return f"The values are in {path}."


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """As `core.base.files.replacing`; a file that could not be written is `Unavailable`, in one line."""
    try:
        with files.replacing(path) as temporary:
            yield temporary
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise Unavailable(
            f"{path} could not be written ({reason}). Choose another folder or free some space."
        ) from error


def _metrics(extracts: Sequence[Extract]) -> list[str]:
    """The quantities of all devices, in the order of menus."""
    return [name for name in BY_ID if any(name in extract.metrics for extract in extracts)]


def _sums_up(extracts: Sequence[Extract]) -> bool:
    return any(extract.table.seconds for extract in extracts)


def _names(metrics: Sequence[str], summed_up: bool) -> list[str]:
    return [f"{metric}{ending}" for metric in metrics for ending in (("_min", "_mean", "_max") if summed_up else ("",))]


def _columns(extract: Extract, metrics: Sequence[str], summed_up: bool) -> list[Floats]:
    """One array per column of `_names`; NaN where the device does not have the quantity."""
    table = extract.table
    unknown = np.full(len(table.times), np.nan)
    index = {metric: number for number, metric in enumerate(extract.metrics)}
    kinds = (table.low, table.mean, table.high) if summed_up else (table.mean,)
    return [kind[:, index[metric]] if metric in index else unknown for metric in metrics for kind in kinds]


def _number(value: float) -> str:
    """As short as it can be read back exactly; empty for NaN."""
    if value != value:
        return ""
    return str(int(value)) if value.is_integer() else repr(value)


def _words(path: Path, rows: int, extracts: Sequence[Extract]) -> str:
    devices = {extract.device: extract.simulated for extract in extracts if len(extract.table.times)}
    simulated = [device for device, is_simulated in devices.items() if is_simulated]
    marked = f" Simulated and marked as such: {', '.join(simulated)}." if simulated else ""
    return f"{count_text(rows, 'row')} of {count_text(len(devices), 'device')} in {path}.{marked}"
