"""What is ours in the process of a script: begins when torch has been imported, and says at the end what was seen. The
script's main thread; nothing here may fail or hold up the script."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import nn

import devexplorer
from devexplorer.core.base.files import replacing
from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.machines.host.finding import HostError
from devexplorer.core.observe import observer, when_full
from devexplorer.core.observe.closing import report_lines
from devexplorer.core.observe.endpoint import Endpoint
from devexplorer.core.observe.late_rank import late_rank
from devexplorer.core.observe.ranks import RankWatch, register
from devexplorer.core.observe.records import ObserveSettings, RunReport
from devexplorer.core.observe.settings import VARIABLE, RunSettings
from devexplorer.core.observe.stops import StopWatch

if TYPE_CHECKING:
    from devexplorer.core.observe.simulated_cards import SimulatedCards


def begin(values: dict[str, Any]) -> None:
    """Torch is there: add the virtual GPUs, and observe from now on."""
    settings = msgspec.convert(values, RunSettings)
    is_worker = "--multiprocessing-fork" in sys.orig_argv
    rank = _number("RANK") if settings.job and not is_worker else None
    is_script = os.getpid() == settings.pid and not settings.job
    script = Script(settings) if is_script or rank is not None else None
    if script is not None:
        when_full.install()
    if rank is not None:
        register(settings.job, rank)
        # of the processes that it starts none is
        os.environ[VARIABLE] = msgspec.json.encode(msgspec.structs.replace(settings, job="", pid=0)).decode()
    elif settings.job and not is_worker:
        _begin_to_watch_ranks(settings)
    if settings.virtual:
        from devexplorer.core.observe.simulated_cards import SimulatedCards  # the whole device: only where it is wanted

        cards = SimulatedCards(settings)
        cards.add()
        if script is not None:
            _begin_to_observe(script, cards)
        cards.emulate()
    elif script is not None:
        _begin_to_observe(script)


def _begin_to_observe(script: Script, cards: SimulatedCards | None = None) -> None:
    """The script goes on whatever fails here, with one line about it."""
    try:
        script.observe(cards)
    except Exception as error:
        with suppress(OSError, ValueError, AttributeError):  # nobody reads it
            print(f"devexplorer: the script is not observed: {type(error).__name__}: {error}", file=sys.__stderr__)


def _begin_to_watch_ranks(settings: RunSettings) -> None:
    """This process starts them."""
    RankWatch(settings.job).start()
    if os.getpid() == settings.pid:  # the whole job ends with it
        atexit.register(shutil.rmtree, settings.job, ignore_errors=True)


def attach(model: nn.Module | None = None, *, name: str | None = None, allow_changes: bool = False) -> None:
    """Let windows of this user look into this process, from now on: for a notebook, or a script that is not run by
    `devexplorer run`. The calling thread is the one that is observed.

    `model` is shown though it was not called yet, `name` is what the window calls the script. With `allow_changes`
    windows may move the script's models to other devices, between two steps and with their optimizers' state; the
    script has to send its inputs there. A second call adds another model; in a forked child it begins anew.
    """
    script = _running.get(os.getpid())
    if script is None:
        named = name or os.path.basename(sys.argv[0]) or "Python"
        script = Script(RunSettings(pid=os.getpid(), script=named))
        script.observe()
        script.is_quiet = True
    if allow_changes:
        script.observation.allows_changes = True
    if model is not None:
        script.observation.show(model)


def step(samples: int = 0) -> None:
    """A step of the script ends here: for loops that have no optimizer, or several. `samples` that it worked on give
    samples per second. Nothing happens in a process that is not observed."""
    script = _running.get(os.getpid())
    if script is not None:
        script.observation.step(samples)


_running: dict[int, Script] = {}
"""The script of this process, by its number: a forked child has none."""


class Script:
    """The script of this process."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._pid = os.getpid()
        self._cards: SimulatedCards | None = None
        self._endpoint: Endpoint | None = None
        self.is_quiet = False
        """It was not started by `devexplorer run`: nothing is said at its end."""

    def observe(self, cards: SimulatedCards | None = None) -> None:
        """Look from now on, before CUDA is emulated."""
        self._cards = cards
        name = self._settings.script or os.path.basename(sys.argv[0])
        self.observation = observer.start(ObserveSettings(script=name, arguments=tuple(sys.argv[1:])))
        greeting = Greeting(
            pid=self._pid,
            name=name,
            folder=os.getcwd(),
            since_unix_s=time.time(),
            torch=str(torch.__version__),
            rank=_number("RANK"),
            ranks=_number("WORLD_SIZE"),
            job=os.path.basename(self._settings.job),
            devices=(self._settings.virtual,) if self._settings.virtual else (),
            devexplorer=devexplorer.__version__,
        )
        StopWatch(self.observation).start()
        self._endpoint = Endpoint(greeting, self.observation)
        try:
            self._endpoint.open()
        except (OSError, HostError) as error:
            self.observation.problem(error)
        _running.clear()
        _running[self._pid] = self
        atexit.register(self.end)

    def end(self) -> None:
        """Say what was seen, on standard error and in the report."""
        if os.getpid() != self._pid:  # a child that was forked
            return
        try:
            lines = self._ended()
        except Exception as error:  # a fault of ours: one line, and the script's own exit code
            lines = [f"what was observed is lost: {type(error).__name__}: {error}"]
        if lines and not self.is_quiet:
            with suppress(OSError, ValueError, AttributeError):  # nobody reads it
                print("devexplorer:", "\n".join(lines).lstrip(), file=sys.__stderr__, flush=True)

    def _ended(self) -> list[str]:
        if self._endpoint is not None:
            self._endpoint.stop()
        report = self.observation.finish()
        if self._endpoint is not None:
            self._endpoint.close(report if report.steps else None)
        lines = report_lines(report) if report.models else []
        if report.rank:  # the first one says all, each other one how it went
            lines = [lines[0], f"  {report.verdict.text}"] if lines else []
        if self._cards is not None:
            lines += [f"  {line}" for line in self._cards.lines()]
            self._cards.end()
        if self._settings.report:
            lines += self._write(report)
        if self._settings.job and report.rank is not None:
            lines += self._of_all_ranks(report)
        full = when_full.last_report()
        if full is not None:
            lines += [f"  {full[1]}", f"  more: devexplorer explain {full[0]}"]
        return lines

    def _of_all_ranks(self, report: RunReport) -> list[str]:
        """What the reports of all ranks say together; the last one to end has them."""
        folder = Path(self._settings.job)
        try:
            with replacing(folder / f"{report.rank}.json") as file:
                file.write_bytes(msgspec.json.encode(report))
            files = list(folder.glob("[0-9]*.json"))
            if len(files) < (report.ranks or 0):
                return []
            reports = [msgspec.json.decode(file.read_bytes(), type=RunReport) for file in files]
            shutil.rmtree(folder)
        except (OSError, msgspec.MsgspecError):  # two that end at once, and the other one says it
            return []
        late = late_rank(reports)
        return [] if late is None else [f"  {late.text}", *(f"  {words}" for words in late.evidence)]

    def _write(self, report: RunReport) -> list[str]:
        path = Path(self._settings.report)
        if report.rank is not None:
            path = path.with_stem(f"{path.stem}-{report.rank}")
        try:
            with replacing(path) as file:
                file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
        except OSError as error:
            return [f"  The report could not be written: {error.strerror or error}."]
        return []


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None
