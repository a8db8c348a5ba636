"""What is ours in the process of a script: begins when torch has been imported, and says at the end what was seen. The
script's main thread; nothing here may fail or hold up the script."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import torch

from devexplorer.core.base import DevExplorerError, bytes_text, count_text, seconds_text, without_cards
from devexplorer.core.devices.cuda_visible_devices import VARIABLE as VISIBLE
from devexplorer.core.isolation.source_location import SourceLocation, place_of
from devexplorer.core.observe import out_of_memory
from devexplorer.core.observe.settings import RunSettings
from devexplorer.core.virtual.backend import add_virtual_gpus
from devexplorer.core.virtual.cuda.emulation import CudaEmulation, Observer, virtual_cards


def begin(values: dict[str, Any]) -> None:
    """Torch is there: add the virtual GPUs, and observe from now on."""
    settings = msgspec.convert(values, RunSettings)
    script = Script(settings)
    out_of_memory.install()
    if settings.virtual:
        script.add_cards()
    if os.getpid() == settings.pid:
        atexit.register(script.end)


class Note(NamedTuple):
    """Something that the script asked for and that is not as on a card."""

    what: str
    why: str
    place: SourceLocation | None

    def text(self) -> str:
        """In one line, which begins with the place."""
        at = "" if self.place is None else f"{os.path.basename(self.place.file)}:{self.place.line}: "
        return f"{at}{self.what}: {self.why}"


class Notes(Observer):
    """What virtual GPUs could not do as cards would, each thing once."""

    def __init__(self) -> None:
        self.found: dict[Note, None] = {}

    def missing(self, name: str, frame: FrameType | None) -> None:
        """See `Observer`."""
        self.found[Note(name, "there is no such card", place_of(frame))] = None

    def not_checked(self, what: str, why: str, frame: FrameType | None) -> None:
        """See `Observer`."""
        self.found[Note(what, why, place_of(frame))] = None


class Script:
    """The script of this process."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._began = time.perf_counter()
        self._notes = Notes()
        self._emulation: CudaEmulation | None = None

    def add_cards(self) -> None:
        """Let CUDA mean virtual GPUs. CUDA_VISIBLE_DEVICES counts where the script has set it; the cards of this
        machine stay hidden from it. Ends the process where that cannot be: the script would run on something else."""
        asked, before = os.environ.get(VISIBLE), dict(os.environ)
        os.environ.update(without_cards({}))
        try:
            count_cards = getattr(torch._C, "_cuda_getDeviceCount", None)
            if count_cards is not None:
                count_cards()  # CUDA reads the variable once in a process: now
            add_virtual_gpus(self._settings.virtual, None if asked == self._settings.visible else asked)
        except DevExplorerError as error:
            sys.stdout.flush()
            print(f"devexplorer: {error}", file=sys.stderr, flush=True)
            os._exit(2)
        for name in without_cards({}):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
        for gpu in virtual_cards():
            gpu.memory.note_lines(True)
        self._emulation = CudaEmulation(len(virtual_cards()), self._notes, spoken=True)
        self._emulation.__enter__()

    def end(self) -> None:
        """Say what was seen, on standard error."""
        if os.getpid() != self._settings.pid:
            return
        lines = self.lines()  # while the cards have CUDA's names
        if self._emulation is not None:
            self._emulation.__exit__(None, None, None)
        with contextlib.suppress(OSError, ValueError):  # nobody reads it
            for line in lines:
                print(line, file=sys.__stderr__)

    def lines(self) -> list[str]:
        """The closing paragraph."""
        full = out_of_memory.last_report()
        told = [] if full is None else [f"devexplorer: {full[1]}", f"  more: devexplorer explain {full[0]}"]
        if not self._settings.virtual:
            return told
        seconds = seconds_text(time.perf_counter() - self._began)
        cards = count_text(len(virtual_cards()), "virtual GPU")
        lines = [f"devexplorer: {cards} in place of CUDA; {seconds} of real time on this CPU"]
        for gpu in virtual_cards():
            peak = gpu.memory.figures().peak_allocated_bytes
            busy = seconds_text(gpu.clock.busy_seconds)
            use = (
                f"peak {bytes_text(peak)} of {bytes_text(gpu.profile.usable_bytes)}, busy {busy}"
                if peak
                else "not used"
            )
            lines.append(f"  {gpu.spoken} {gpu.profile.name} (simulated): {use}")
        return lines + [f"  {note.text()}" for note in self._notes.found] + told
