"""What was observed of a run, as frozen records; `RunReport` is also the format of its file. Any thread, no torch."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import BaseCommand, BaseEvent, Record

PARTS = 32
BY_SIGNAL, IN_DEBUGGER = "by a signal", "in a debugger"
"""How a script is stopped."""
SCHEMA = 1
"""Of `RunReport`; changes when a reader of the one before would misunderstand it."""
REPORT_KIND = "run of a script"
REPORT_MARK = b'{\n  "schema": 1,\n  "script": '
"""How its file begins."""


class ObserveSettings(Record):
    """What is to be observed, and how."""

    script: str = ""
    """Its path, or `-m MODULE`, as the user wrote it."""
    arguments: tuple[str, ...] = ()
    places: bool = True
    """Whether a thread looks, for a hundred samples at most, which line the script's own time is spent in. It begins
    only once that time is a large part of a step."""


class PhaseTime(Record):
    """One phase of a step."""

    name: str
    seconds: float
    """Real seconds, of all steps that count."""
    device_seconds: float | None = None
    """The same on the clock that the verdict goes by, where that is not the processor's: see `RunReport.clock`."""
    share: float = 0.0
    """Of all steps, on the clock that the verdict goes by."""
    median_seconds: float = 0.0
    """Of a step, on that clock."""
    parts: tuple[float, ...] = ()
    """The medians of up to `PARTS` consecutive parts of the run, for comparisons."""


class ObservedModel(Record):
    """Models of one class that were called by the script itself, not by another model."""

    name: str
    """Its class."""
    place: str
    """File and line of its first call."""
    calls: int
    parameters: int = 0
    bytes_by_device: dict[str, int]
    """Parameters and buffers."""
    bytes_by_dtype: dict[str, int]
    gradient_bytes: dict[str, int]
    """By device, as all that follow."""
    optimizer_bytes: dict[str, int]


class ParameterPlace(Record):
    """Where one parameter was when the run was last weighed, with what belongs to it."""

    name: str
    device: str
    dtype: str
    bytes: int
    gradient_bytes: int = 0
    gradient_device: str | None = None
    optimizer_bytes: int = 0
    optimizer_device: str | None = None


class DeviceUse(Record):
    """Memory of one device during a run."""

    device: str
    peak_allocated_bytes: int | None = None
    """Of torch's allocator; of the CPU: what the process had resident at the most, when it was looked at."""
    peak_reserved_bytes: int | None = None
    growth_bytes_per_step: float | None = None
    """Where it grew at every step."""
    simulated: bool = False
    name: str = ""
    """`Tesla T4`; empty: not known."""


class RunVerdict(Record):
    """What takes the time of a step, in one line, and what says so."""

    kind: str
    """`input-bound`, `copy-bound`, `read-back-bound`, `rest-bound`, `compute-bound`, `backward-bound`,
    `optimizer-bound`, `launch-bound`, `host-bound`, `evaluation-bound`, `rank-late`, `back-and-forth`,
    `memory-creeping` or `not-sure`."""
    text: str
    evidence: tuple[str, ...] = ()
    place: str | None = None
    """The line of the script that it is about, where that is known."""


class RunReport(Record):
    """A run of a script, when it is over."""

    schema: int = SCHEMA
    script: str
    arguments: tuple[str, ...]
    python: str
    torch: str
    started_unix_s: float
    seconds: float
    steps: int
    """Rounds of the optimizer; without one, of the first model that was called."""
    samples: int = 0
    """That these worked on, where the script says it (`devexplorer.step`)."""
    steps_counted: int
    """Of which so many are in the phases: the first ones are warm-up."""
    training: bool
    clock: str
    """`cpu`; `cuda`: events on the stream; `simulated`: what virtual GPUs would have taken."""
    models: tuple[ObservedModel, ...] = ()
    parameters: tuple[ParameterPlace, ...] = ()
    """Of the model with the most parameters, as it was last weighed; the first ten thousand."""
    phases: tuple[PhaseTime, ...] = ()
    step_median_seconds: float | None = None
    step_parts: tuple[float, ...] = ()
    """Of the whole step: see `PhaseTime.parts`."""
    memory: tuple[DeviceUse, ...] = ()
    verdict: RunVerdict
    problems: tuple[str, ...] = ()
    """Of observing itself; none of them reached the script."""
    rank: int | None = None
    ranks: int | None = None
    stopped: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds for which the script was stopped `by a signal` or `in a debugger`: they belong to no step."""


class WhatHolds(BaseCommand, tag="WhatHolds"):
    """Say what keeps an object, or a part of a model, alive."""

    target: str


class StepMemory(BaseCommand, tag="StepMemory"):
    """Say what the next step of a running script has in the memory, by part and by layer."""


class ScriptPlacement(BaseCommand, tag="ScriptPlacement"):
    """Say on which devices the models of a running script are, and what goes from one to another at every step."""


class ScriptSteps(BaseEvent, tag="ScriptSteps"):
    """What a running script has done since the word before."""

    time_unix_s: float
    steps: int
    """Since it began."""
    steps_per_second: float
    """Real ones, also on virtual GPUs."""
    phases: dict[str, float]
    """Seconds of each phase in a step, the mean of these steps."""
    simulated: bool = False
    """Those are seconds of virtual GPUs."""
    verdict: str = ""
    """What takes the time, in one line; empty: there were too few steps."""


class ScriptHeld(BaseEvent, tag="ScriptHeld"):
    """The script was stopped, or goes on."""

    how: str
    """`by a signal` or `in a debugger`; empty: it goes on."""


class ScriptEnded(BaseEvent, tag="ScriptEnded"):
    """The script that was shown has ended."""

    report: bytes
    """A `RunReport` without its parameters, as JSON: windows move times that they understand to their own clock, and
    this is to be the same run for all of them."""
