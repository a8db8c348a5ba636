"""Virtual GPUs in place of CUDA in the process of a script: added before it uses any, and what they did. The script's
main thread."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import NamedTuple

import torch

from devexplorer.core.base import DevExplorerError, bytes_text, seconds_text, without_cards
from devexplorer.core.devices.cuda_visible_devices import VARIABLE as VISIBLE
from devexplorer.core.isolation.source_location import SourceLocation, place_of
from devexplorer.core.observe.settings import RunSettings
from devexplorer.core.virtual.backend import add_virtual_gpus
from devexplorer.core.virtual.cuda.emulation import CudaEmulation, Observer, virtual_cards


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


class SimulatedCards:
    """`add` them, `emulate` CUDA, `lines` and `end` when the script is over."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._notes = Notes()
        self._emulation: CudaEmulation | None = None

    def add(self) -> None:
        """Register the virtual GPUs. CUDA_VISIBLE_DEVICES counts where the script has set it; the cards of this machine
        stay hidden from it. Ends the process where that cannot be: the script would run on something else."""
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
        for gpu in virtual_cards():
            gpu.memory.note_lines(True)
        for name in without_cards({}):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]

    def emulate(self) -> None:
        """From now on CUDA means them."""
        self._emulation = CudaEmulation(len(virtual_cards()), self._notes, spoken=True)
        self._emulation.__enter__()

    def lines(self) -> list[str]:
        """What each did, and what was not as on cards."""
        lines = []
        for gpu in virtual_cards():
            peak = gpu.memory.figures().peak_allocated_bytes
            if not peak and self._settings.job:
                continue  # it is another rank's
            use = "not used"
            if peak:
                capacity, busy = bytes_text(gpu.profile.usable_bytes), seconds_text(gpu.clock.busy_seconds)
                use = f"peak {bytes_text(peak)} of {capacity}, busy {busy} of simulated time"
            lines.append(f"{gpu.spoken} {gpu.profile.name} (simulated): {use}")
        return lines + [note.text() for note in self._notes.found]

    def end(self) -> None:
        """CUDA is what it was."""
        if self._emulation is not None:
            self._emulation.__exit__(None, None, None)
