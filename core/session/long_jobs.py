"""What ended that took so long that the user may have turned to something else. Main thread; no Qt, no torch."""

from __future__ import annotations

import time

from devexplorer.core.base import Clock, elapsed_text, first_line, number_text
from devexplorer.core.session.jobs import Job, Run
from devexplorer.core.session.state import State

LONG_S = 60.0


class LongJobs:
    """Ask it for what `ended` whenever jobs have changed."""

    def __init__(self, state: State, clock: Clock = time.time) -> None:
        self._state, self._clock = state, clock
        self._running: dict[int, Job] = {}

    def forget(self) -> None:
        """Other commands are under way from now on: another machine is shown."""
        self._running = dict(self._state.jobs)

    def ended(self) -> list[str]:
        """A line for each command and benchmark that is over since the last call, if it took a minute."""
        now, jobs = self._clock(), self._state.jobs
        over = [job for request, job in self._running.items() if jobs.get(request) is not job]
        self._running = dict(jobs)
        return [self._line(job, now) for job in over if now - job.started_unix_s >= LONG_S]

    def _line(self, job: Job, now: float) -> str:
        run, after = self._state.runs.get(job.request), f"after {elapsed_text(now - job.started_unix_s)}"
        if run is not None:
            return _run_line(run, after)
        answer = job.answer
        if answer is None and self._state.engine is None:
            return f"{job.title}: the engine ended {after}."
        if answer is not None and answer.cancelled:
            return f"{job.title}: cancelled {after}."
        if answer is not None and answer.failed:
            return f"{job.title}: failed {after}: {first_line(answer.words)}."
        return f"{job.title}: finished {after}."


def _run_line(run: Run, after: str) -> str:
    from devexplorer.core.benchmark.kinds import devices_of, kind_of, title  # loaded with the first run

    where = f"{title(run.spec)} on {', '.join(devices_of(run.spec))}{' (simulated)' if run.simulated else ''}"
    if run.result is None:
        return f"{where}: ended {after} without a result: {first_line(run.reason or '')}."
    spread, unit = kind_of(run.result).headline(run.result)[:2]
    figure = "" if spread is None else f", {number_text(spread.median)} {unit}"
    if run.reason is not None:
        return f"{where}: failed {after}{figure}: {first_line(run.reason)}."
    return f"{where}: {'stopped' if run.result.stopped else 'finished'} {after}{figure}."
