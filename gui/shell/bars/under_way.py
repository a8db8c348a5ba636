"""Gathers what is being worked on, for the panels that show it at the object or the device. Main thread."""

from __future__ import annotations

from devexplorer.core.records import Command
from devexplorer.core.session import Progress, State, UnderWay, device_of, objects_of, verb_of

SHOW_AFTER_S = 0.3
"""Work shorter than this comes and goes without progress."""


def under_way(state: State, now_unix_s: float) -> UnderWay:
    """Commands and benchmarks that have taken a moment already."""
    objects: dict[str, Progress] = {}
    devices: dict[str, Progress] = {}

    def put(command: Command, done: float | None, title: str, *where: str, part: str = "") -> None:
        progress = Progress(verb_of(command), done, title)
        objects.update((name, progress) for name in objects_of(command) if name in state.objects)
        owner, _, path = part.partition(":")
        if owner in objects:
            objects[owner] = progress._replace(part=path)
        devices.update((name, progress) for name in where if name in state.devices)

    for job in state.jobs.values():
        if job.command is None or now_unix_s - job.started_unix_s < SHOW_AFTER_S:
            continue
        run = state.runs.get(job.request)
        if run is None:
            put(job.command, job.done, job.title, device_of(job.command) or "", part=job.part)
        elif not run.ended:
            from devexplorer.core.benchmark.kinds import devices_of  # loaded with the first run
            from devexplorer.gui.benchmark.runs import done_share

            put(job.command, done_share(run, now_unix_s), job.title, *devices_of(run.spec))
    return UnderWay(objects, devices)
