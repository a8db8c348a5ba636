"""The calibrations of this user, beside the settings: a file each, so that none is lost with another. Any thread; no
torch.

A newer calibration of the same card in the same machine with the same torch replaces the older one.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.base.chosen_python import settings_file
from devexplorer.core.base.files import replacing
from devexplorer.core.planner.calibrate.kind import CalibrateResult, combined
from devexplorer.core.records import Calibration, Conditions

SCHEMA = 1
FOLDER = "calibrations"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class _File(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    calibration: Calibration


def calibration_of(result: CalibrateResult, conditions: Conditions) -> Calibration:
    """Of a finished run. Raises `BadInput` with the reason where it is none."""
    if result.unusable is not None:
        raise BadInput(result.unusable)
    day = datetime.fromtimestamp(conditions.ended_unix_s)
    mark = " (simulated)" if result.simulated else ""
    return Calibration(
        name=f"{result.card} calibrated on {day.day} {MONTHS[day.month - 1]} {day.year}{mark}",
        card=result.card,
        factors=combined(result.rows),
        measured_unix_s=conditions.ended_unix_s,
        device=result.spec.device,
        uuid=conditions.uuid,
        host=conditions.host,
        torch_version=result.torch_version,
        simulated=result.simulated,
    )


class CalibrationStore:
    """Reads the files anew each time: another process may have written some."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = settings_file().parent / FOLDER if folder is None else folder

    def load(self) -> tuple[Calibration, ...]:
        """All that can be read, by name; what a newer version wrote, or something damaged, is left alone."""
        found = [calibration for path in self._paths() if (calibration := _read(path)) is not None]
        return tuple(sorted(found, key=lambda calibration: calibration.name))

    def save(self, calibration: Calibration) -> Calibration:
        """Keep it, under a name that no other has; returns it with that. Raises `Unavailable`."""
        taken = {other.name for other in self.load() if other.key != calibration.key}
        number, name = 1, calibration.name
        while name in taken:
            number += 1
            name = f"{calibration.name} ({number})"
        kept = replace(calibration, name=name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(kept)) as temporary:
                temporary.write_bytes(msgspec.json.format(msgspec.json.encode(_File(schema=SCHEMA, calibration=kept))))
        except OSError as error:
            raise Unavailable(
                f"The calibration could not be saved in {self.folder} ({error.strerror}); make the folder writable."
            ) from error
        return kept

    def remove(self, name: str) -> None:
        """Forget one. Raises `BadInput` where there is none of that name, `Unavailable`."""
        known = self.load()
        for path in self._paths():
            calibration = _read(path)
            if calibration is not None and calibration.name == name:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise Unavailable(f"{path} could not be removed ({error.strerror}).") from error
                return
        there = ", ".join(f"'{calibration.name}'" for calibration in known) or "none"
        raise BadInput(f"there is no calibration '{name}'; there is {there}")

    def _paths(self) -> list[Path]:
        try:
            return sorted(self.folder.glob("*.json"))
        except OSError:
            return []

    def _path(self, calibration: Calibration) -> Path:
        """The same for the same card in the same environment."""
        text = msgspec.json.encode(calibration.key)
        return self.folder / f"{hashlib.sha256(text).hexdigest()[:16]}.json"


def _read(path: Path) -> Calibration | None:
    try:
        saved: Any = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return saved.calibration if saved.schema == SCHEMA else None
