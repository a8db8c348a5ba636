"""What the window remembers between starts: one small JSON file in the user's configuration folder. Main thread;
`SettingsFile.write` on any."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec

from devexplorer.core.base import Clock, replacing
from devexplorer.core.base.chosen_python import FILE, settings_file
from devexplorer.core.base.chosen_python import KnownMachine as KnownMachine
from devexplorer.core.feature import feature_settings

_Pixels = Annotated[int, msgspec.Meta(ge=-100_000, le=100_000)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a window is on a screen, in pixels from the corner of that screen."""

    left: _Pixels
    top: _Pixels
    width: _Size
    height: _Size
    maximised: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings; a damaged or unknown field takes its default."""

    theme: str = ""
    """Empty: as the desktop prefers."""
    geometry: str = ""
    """Of the window, base64 as Qt saves it and earlier versions kept it."""
    places: dict[str, dict[str, Place]] = {}
    """Of the window (`main`) and of panels in windows, by the name and size of the screen; the screen that it was on
    last comes last."""
    detached: tuple[str, ...] = ()
    """Panels that have a window of their own."""
    layout: str = "explore"
    """Which layout is shown."""
    tabs: dict[str, str] = {}
    """The tab that each layout had in front."""
    splitters: dict[str, list[Annotated[int, msgspec.Meta(ge=0, le=100_000)]]] = {}
    """Sizes in pixels, by the splitter's name; 0: as the layout has it."""
    folded: tuple[str, ...] = ()
    """Panels that are folded to their headings."""
    span_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 120.0
    left_plot: str = "memory_used_bytes"
    """What each plot shows: a metric, `tflops`, or `parts:` and a device."""
    right_plot: str = "tflops"
    monitor_plots: tuple[str, ...] = ()
    """What the plots of the layout Monitor show, from above; empty: what the devices report."""
    machines: tuple[KnownMachine, ...] = ()
    """Machines that were connected, the newest first."""
    pythons: dict[str, str] = {}
    """The Python of the engine, by the folder that a window is started in; empty: the window's own. See
    `python_choice`."""
    learned: tuple[str, ...] = ()
    """Exercises that were done."""
    notifications: bool = True
    """Whether alarms, and the end of long work, are shown on the desktop as well."""
    of_features: dict[str, Any] = {}
    """What features remember (`Feature.settings`), and what this version does not know; keys of the file beside the
    others."""


def saved_form(settings: Settings) -> dict[str, Any]:
    """As the file has them."""
    fields: dict[str, Any] = msgspec.to_builtins(settings)
    return {**fields.pop("of_features"), **fields}


class SettingsFile:
    """Reads and writes the settings; never raises."""

    def __init__(self, folder: Path | None = None, clock: Clock = time.time) -> None:
        self._clock = clock
        self._writing = threading.Lock()
        self._wanted: Settings | None = None
        self._written: Settings | None = None
        self.damage: str | None = None
        """One sentence about a damaged file, and where `load` moved it."""
        self.path = settings_file() if folder is None else folder / FILE

    def load(self) -> Settings:
        """The saved settings, as far as they can be read; defaults for the rest. A damaged file is put aside."""
        self.damage = None
        try:
            saved = msgspec.json.decode(self.path.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return Settings()
        except OSError as error:
            self.damage = self._put_aside(f"could not be read ({error.strerror})", "defaults are used")
            return Settings()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.damage = self._put_aside("are damaged", "defaults are used")
            return Settings()
        kept: dict[str, Any] = {}
        lost: list[str] = []
        fields = msgspec.structs.fields(Settings)
        own = {field.name: field.type for field in fields if field.name != "of_features"}
        types = own | feature_settings()
        for name, value in saved.items():
            try:
                kept[name] = msgspec.convert(value, types.get(name, Any))
            except msgspec.ValidationError:
                lost.append(name)  # edited by hand or by a newer version; the other fields stay
        if lost:
            self.damage = self._put_aside(f"are damaged in {', '.join(lost)}", "defaults are used there", copy=True)
        of_features = {name: kept.pop(name) for name in kept.keys() - own.keys()}
        return Settings(**kept, of_features=of_features)

    def _put_aside(self, what: str, instead: str, *, copy: bool = False) -> str:
        """Keep the file under another name, `window.damaged-20261122-110512.json`; returns what to say."""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._clock()))
        aside = self.path.with_name(f"{self.path.stem}.damaged-{stamp}{self.path.suffix}")
        try:
            if copy:
                aside.write_bytes(self.path.read_bytes())
            else:
                self.path.replace(aside)
        except OSError as error:
            return f"The settings in {self.path} {what}; {instead}. They could not be put aside ({error.strerror})."
        return f"The settings {what}; {instead}. The original file is {aside}."

    def save(self, settings: Settings) -> str | None:
        """Write all or nothing; returns one sentence when that was not possible."""
        self.keep(settings)
        return self.write()

    def keep(self, settings: Settings) -> None:
        """What the next `write` writes."""
        self._wanted = settings

    def write(self) -> str | None:
        """As `save`, of what is to be kept. Any thread, several at once, too: whoever comes last writes what was kept
        last."""
        with self._writing:
            settings = self._wanted
            if settings is None or settings is self._written:
                return None
            problem = self._write(settings)
            if problem is None:
                self._written = settings
            return problem

    def _write(self, settings: Settings) -> str | None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as temporary:
                temporary.write_bytes(msgspec.json.format(msgspec.json.encode(saved_form(settings))))
        except OSError as error:
            return (
                f"The settings could not be saved in {self.path.parent} ({error.strerror}); make the folder writable to"
                " keep the layout."
            )
        return None

    def writable(self) -> str | None:
        """One sentence if saving will fail, for the start instead of the end."""
        folder = self.path.parent
        while not os.path.exists(folder) and folder != folder.parent:
            folder = folder.parent
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return None
        return f"The folder {self.path.parent} is not writable: the layout of this session will not be remembered."
