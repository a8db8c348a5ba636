"""Waits for a device's memory to run out, and then writes a file that says what was in it, and why: before the
exception is raised, whether the script catches it or not. The thread on which it happened.

Virtual GPUs tell of it where the allocator gives up (`core.base.full_devices`), CUDA through torch's own hook;
what neither told of is looked at when it ends the script. The script gets its exception in every case: whatever fails
here is noted in `problems`. It takes at most a few seconds, and at most one time in fifty of a script that runs out of
memory again and again, as those do that look for the largest batch; the file is that of the last time.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from devexplorer.core.base import bytes_text, replacing, typed_line
from devexplorer.core.base.full_devices import observe_full

if TYPE_CHECKING:
    from devexplorer.core.observe.memory_report import OutOfMemoryReport
    from devexplorer.core.virtual.device.machine import VirtualGpu

PAUSE = 50
"""After a report nothing is looked at for so many times what it took, and at least `LEAST_PAUSE_S`."""
LEAST_PAUSE_S = 1.0

problems: list[str] = []
"""What failed here."""
_watch: OutOfMemoryWatch | None = None


def install(folder: str | None = None) -> None:
    """Write a report whenever memory runs out in this process from now on; into `folder`, or else where the script is
    at that moment. A second call changes the folder only. Call it before virtual GPUs are added."""
    global _watch
    if _watch is None:
        _watch = OutOfMemoryWatch()
        _watch.install()
    _watch.folder = folder


def last_report() -> tuple[str, str] | None:
    """The file that was written last, and its first line; None: there is none."""
    return None if _watch is None else _watch.last


class OutOfMemoryWatch:
    """Waits for memory to run out; there is one in a process."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.last: tuple[str, str] | None = None
        self._busy = threading.Lock()
        self._quiet_until = 0.0
        self._looked = False
        """Whether what was told of last was looked at."""
        self._step_mark = 0

    def install(self) -> None:
        """Be told."""
        register_optimizer_step_post_hook(self._stepped)
        observe_full(self._virtual_full)
        if torch.version.cuda is not None:
            torch.cuda._lazy_call(self._attach)  # by itself it would start CUDA, or raise where there is no card
        before = sys.excepthook

        def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._uncaught(error, trace)
            before(kind, error, trace)

        sys.excepthook = uncaught

    def _attach(self) -> None:
        try:
            torch._C._cuda_attach_out_of_memory_observer(self._cuda_full)  # type: ignore[attr-defined]
        except Exception as error:
            problems.append(typed_line(error))

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._step_mark = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]

    def _virtual_full(self, gpu: VirtualGpu, nbytes: int, message: str) -> None:
        self._guarded(lambda looking: looking.virtual_card(gpu), nbytes, message)

    def _cuda_full(self, device: int, nbytes: int, allowed: int, free: int) -> None:
        message = f"CUDA out of memory. Tried to allocate {bytes_text(nbytes)} on cuda:{device}."
        self._guarded(lambda looking: looking.cuda_card(device, allowed), nbytes, message)

    def _uncaught(self, error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, torch.OutOfMemoryError) or self._looked:
            return
        message = str(error)
        self._quiet_until = 0.0
        self._guarded(lambda looking: looking.card_named(message), None, message, trace)

    def _guarded(
        self, card: Callable[[Any], Any], nbytes: int | None, message: str, trace: TracebackType | None = None
    ) -> None:
        """Whatever happens here, the script goes on as it would. `nbytes` that were asked for, or None: the message has
        them; `trace` of an exception that nothing has told of before."""
        self._looked = False
        if time.monotonic() < self._quiet_until or not self._busy.acquire(blocking=False):
            return
        began = time.monotonic()
        frames: list[FrameType] = []
        try:
            from devexplorer.core.observe import out_of_memory as looking  # a script that has room starts without it

            frames = looking.frames_of_script() if trace is None else looking.frames_in(trace)
            records = torch.is_grad_enabled()
            with torch._C.DisableTorchFunction(), torch.no_grad():
                full = card(looking)
                if full is not None:
                    asked = looking.asked_for(message) if nbytes is None else nbytes
                    report = looking.look(full, asked, message, frames, records, self._step_mark)
                    self._looked = True
                    self.last = str(self._write(report)), report.cause.text
        except Exception as error:
            problems.append(typed_line(error))
        finally:
            frames.clear()
            took = time.monotonic() - began
            self._quiet_until = time.monotonic() + max(LEAST_PAUSE_S, PAUSE * took)
            self._busy.release()

    def _write(self, report: OutOfMemoryReport) -> Path:
        script = re.sub(r"[^\w.-]", "_", os.path.basename(report.script))[:80] or "python"
        name = f"devexplorer-oom-{script}-{os.getpid()}.json"
        data = msgspec.json.encode(report)
        first = Path(self.folder or os.getcwd())
        for folder in (first, _cache_folder(), Path(tempfile.gettempdir())):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with replacing(folder / name) as temporary:
                    temporary.write_bytes(data)
            except OSError as error:
                problems.append(f"{folder}: {error.strerror or error}")
                continue
            return folder / name
        raise OSError("there is no folder to write the report into")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "devexplorer" / "out-of-memory"
