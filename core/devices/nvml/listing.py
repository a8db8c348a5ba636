"""Lists the cards and their MIG instances, at start and again at any time, and who uses a card. On the thread that
lists and helpers of it, and on sampler threads; no torch, no Qt.

What is known stays: a card that is listed again costs three calls, keeps what is remembered of it and gives an equal
record, and one that cannot be opened now is not forgotten. What is gone is dropped with its handle. Each card is a
job for itself, so that one that hangs hides no other.

NVML's process numbers are the host's. In a container with its own numbers they mean other processes, so names,
users and command lines are left out, and an empty list is "not visible from here".
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from devexplorer.core.base.time_limit import AbandonedError, CallTracker, TimeLimitError
from devexplorer.core.devices.nvml import fields
from devexplorer.core.devices.nvml.query import (
    CardLostError,
    CardState,
    Query,
    QueryRunner,
    nvmlDeviceGetProcessUtilization,
    running_processes,
)
from devexplorer.core.devices.nvml_card import Card, ProcessFacts, ProcessLoad
from devexplorer.core.devices.plausible import MOST_BYTES, in_range
from devexplorer.core.records import ProcessUse

InTime = Callable[[Sequence[Callable[[CallTracker], Any]]], list[Any]]
"""Does jobs in time (`time_limit.finished`)."""

HANDLE = "handle"
"""The field of the question that opens a card."""
_INSTANCES = Query(
    "mig_instances", lambda n, h: int(in_range(n.nvmlDeviceGetMaxMigDeviceCount(h), 0, 64, "MIG instances"))
)


def list_cards(
    runner: QueryRunner, machine: CardState, known: Mapping[str, CardState], in_time: InTime
) -> dict[str, CardState] | None:
    """`Card.key` -> card, in NVML's order, each card followed by its instances; None when NVML does not even count
    them.

    Raises `NvmlGoneError`.
    """

    def of_the_machine(tracker: CallTracker) -> tuple[Any, ...]:
        machine.tracker = tracker
        return tuple(runner.ask(machine, query) for query in (fields.DRIVER_VERSION, fields.CUDA_VERSION, fields.COUNT))

    driver, cuda, count = in_time([of_the_machine])[0]
    if count is None:
        return None
    places = {item.card.index: item for item in known.values() if item.card and item.card.mig_instance is None}
    jobs = []
    for index in range(count):
        name = f"NVIDIA card {index}"
        blank = Card(
            index=index, uuid=None, name=name, named=False, driver_version=driver, cuda_version=fields.cuda_text(cuda)
        )
        jobs.append(partial(_card_with_instances, runner, known, places.get(index), blank))
    result: dict[str, CardState] = {}
    for item in (item for family in in_time(jobs) for item in family):
        if (duplicate := result.get(item.known_card.key)) is not None:
            item = _without_uuid(runner, item, duplicate)
        result[item.known_card.key] = item
    return result


def _without_uuid(runner: QueryRunner, state: CardState, duplicate: CardState) -> CardState:
    """A card that answers with the UUID of another one goes by its place."""
    card = state.known_card
    if state is duplicate:
        return state
    message = f"the driver gives this card the UUID of {duplicate.known_card.nvml_id} ({card.uuid})"
    runner.set_missing(state, fields.UUID, message, problem=True)
    state.card = replace(card, uuid=None)
    return state


def _card_with_instances(
    runner: QueryRunner, known: Mapping[str, CardState], previous: CardState | None, blank: Card, tracker: CallTracker
) -> list[CardState]:
    state = _open(runner, known, previous, blank, tracker)
    if state.known_card.mig and state.known_card.broken is None:
        return [state, *_instances(runner, known, state, tracker)]
    return [state]


def _open(
    runner: QueryRunner, known: Mapping[str, CardState], previous: CardState | None, blank: Card, tracker: CallTracker
) -> CardState:
    """The card at the place of `blank`."""
    fresh = CardState(blank.nvml_id, blank, tracker=tracker, hanging=runner.hanging_at(blank.index))
    state = previous or fresh
    try:
        handle = _handle(runner, state, fresh, blank)
        if handle is None:
            return state
        fresh.handle = handle
        uuid = runner.ask(fresh, fields.UUID)
        if uuid is not None:
            state = known.get(uuid, fresh)  # else it is taken for the one that was here
        mig = runner.ask(fresh, fields.MIG)
        is_new = state is fresh or state.handle is None  # without a handle: NVML was started again
        state.handle, state.device, state.hanging = handle, blank.nvml_id, fresh.hanging
        state.unsupported = {}
        card = state.known_card
        if mig is None:
            mig = card.mig  # a question that fails for once switches nothing
        if is_new or card.broken or not card.named or card.mig != mig or card.index != blank.index:
            _describe(runner, state, fresh, replace(blank, uuid=uuid or card.uuid, mig=mig))
    except CardLostError as error:
        runner.add_problem(state, None, str(error))
        state.card = broken(state.card or blank, str(error))
    return state


def broken(card: Card, why: str) -> Card:
    """A card that nothing can be read from: what was in use when it was listed is no longer true."""
    return replace(card, broken=why, memory_used_bytes=None)


def _handle(runner: QueryRunner, state: CardState, fresh: CardState, blank: Card) -> Any:
    """What NVML knows the card by; None where it cannot be opened, which is then stated."""
    try:
        return runner.call(fresh, Query(HANDLE, lambda n, _: n.nvmlDeviceGetHandleByIndex(blank.index)))
    except AbandonedError:
        raise
    except TimeLimitError as error:
        message = str(error)
    except Exception as error:
        runner.check(state, getattr(error, "value", None))
        message = runner.message(error)
    runner.add_problem(state, None, f"the card cannot be opened: {message}")
    state.card = broken(state.card or blank, message)
    return None


def _describe(runner: QueryRunner, state: CardState, fresh: CardState, card: Card) -> None:
    """Find out what a card is that is new here, or that is in another mode: other answers, and other reasons."""
    fresh.card = card
    description = _described(runner, fresh, card)
    if state is not fresh:
        runner.forget(state)
        state.reasons.update(fresh.reasons)
        for problem in fresh.problems.values():
            runner.add_problem(state, problem.field, problem.reason)
    state.card = description


def _described(runner: QueryRunner, state: CardState, card: Card) -> Card:
    """What a card or a MIG instance is."""
    name = runner.ask(state, fields.NAME)
    memory: fields.CardMemory | None = runner.ask(state, fields.MEMORY)
    if memory is not None and memory.shared and card.mig_instance is not None:
        memory = None  # what is cut into instances has memory of its own
    card = replace(
        card,
        name=name or card.name,
        named=name is not None,
        memory_total_bytes=memory.total_bytes if memory else None,
        memory_used_bytes=memory.used_bytes if memory else None,
        memory_shared=memory.shared if memory else False,
    )
    if card.mig_instance is not None:
        number = runner.ask(state, fields.GPU_INSTANCE)
        return replace(card, mig_profile=fields.mig_profile(card.name), gpu_instance_id=number)
    return replace(
        card,
        bus_id=runner.ask(state, fields.BUS_ID),
        compute_capability=runner.ask(state, fields.CAPABILITY),
        ecc=runner.ask(state, fields.ECC),
        compute_mode=runner.ask(state, fields.COMPUTE_MODE),
    )


def _instances(
    runner: QueryRunner, known: Mapping[str, CardState], card_state: CardState, tracker: CallTracker
) -> list[CardState]:
    """The MIG instances of a card."""
    result: list[CardState] = []
    card = card_state.known_card
    parent = CardState(card.nvml_id, card, card_state.handle, tracker=tracker, hanging=card_state.hanging)
    try:
        places = runner.ask(parent, _INSTANCES)
        if places is None:
            return [item for item in known.values() if item.card and item.card.parent_key == card.key]
        for number in range(places):
            hanging = runner.hanging_at(card.index, number)
            fresh = CardState(card.nvml_id, card, parent.handle, tracker=tracker, hanging=hanging)
            try:
                handle = runner.call(fresh, Query(HANDLE, partial(_instance_handle, number=number)))
                fresh.handle = handle
                uuid = runner.call(fresh, fields.UUID)
            except AbandonedError:
                raise
            except Exception:
                continue  # NotFound: places for instances are numbered to the maximum, most of them empty
            blank = Card(
                index=card.index,
                uuid=uuid,
                name=card.name,
                mig_instance=number,
                parent_key=card.key,
                bus_id=card.bus_id,
                compute_capability=card.compute_capability,
                driver_version=card.driver_version,
                cuda_version=card.cuda_version,
            )
            state = known.get(uuid) or CardState(card.nvml_id, blank, hanging=hanging)
            is_new = (
                state.handle is None or state.known_card.index != card.index or state.known_card.mig_instance != number
            )
            state.handle, state.device, state.hanging = handle, card.nvml_id, hanging
            state.unsupported = {}
            if is_new:
                _describe(runner, state, fresh, blank)
            result.append(state)
    except CardLostError as error:
        runner.add_problem(card_state, None, str(error))  # the card stays in the list
    return result


def _instance_handle(nvml: Any, handle: Any, *, number: int) -> Any:
    return nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)


HIDDEN = "this is a container with its own process numbers: processes outside are not visible from here"

_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of Linux's initial pid namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h)."""

_COMPUTE = Query("processes", running_processes("Compute", 3), running_processes("Compute", 2), expected=True)
_GRAPHICS = Query("graphics_processes", running_processes("Graphics", 3), running_processes("Graphics", 2))


@cache  # a process keeps its numbers, and asking takes as long as ten calls of the driver
def in_pid_namespace() -> bool:
    """Whether this process has process numbers of its own (a container), which NVML's are not."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return os.stat(Path("/proc/self/ns/pid")).st_ino != _FIRST_PID_NAMESPACE
    except OSError:
        return False


def merged(
    lists: Iterable[tuple[str, Iterable[Any] | None]], capacity_bytes: int | None
) -> dict[int, tuple[tuple[str, ...], int | None]]:
    """Process number -> kinds and memory in bytes, of NVML's lists by kind.

    Numbers of 0 and below, or beyond 31 bits, are what a structure of another version looks like, and are left out;
    memory beyond the card's is not known.
    """
    most = capacity_bytes if capacity_bytes is not None else MOST_BYTES
    use: dict[int, tuple[tuple[str, ...], int | None]] = {}
    for kind, result in lists:
        for process in result or ():
            pid, memory = int(process.pid), process.usedGpuMemory
            if not 0 < pid < 2**31:
                continue
            if memory is not None and not 0 <= memory <= most:
                memory = None
            kinds, before = use.get(pid, ((), None))
            known = [size for size in (before, memory) if size is not None]
            use[pid] = (kinds if kind in kinds else (*kinds, kind), max(known) if known else None)
    return use


def busy_percent(samples: Iterable[Any], seen: int, field: str = "smUtil") -> tuple[dict[int, float], int]:
    """Process number -> mean SM (or memory) utilization of the samples after `seen`, and the newest time stamp
    (microseconds)."""
    result: dict[int, list[int]] = defaultdict(list)
    newest = seen
    for sample in samples:
        share = int(getattr(sample, field))
        if int(sample.timeStamp) > seen and 0 <= share <= 100:
            result[int(sample.pid)].append(share)
            newest = max(newest, int(sample.timeStamp))
    return {pid: sum(values) / len(values) for pid, values in result.items()}, newest


def cpu_percent(load: ProcessLoad, before: tuple[float, float] | None, now_s: float) -> float | None:
    """Share of one core since `before`, (monotonic seconds, seconds of CPU); None at the first reading, and where the
    number is another process by now."""
    if load.cpu_s is None or before is None or now_s <= before[0] or load.cpu_s < before[1]:
        return None
    return 100 * (load.cpu_s - before[1]) / (now_s - before[0])


def read_processes(
    runner: QueryRunner,
    state: CardState,
    card: Card,
    facts: Callable[[int], ProcessFacts],
    hidden: bool,
    load_of: Callable[[int], ProcessLoad],
    now_s: float,
) -> tuple[ProcessUse, ...] | None:
    """Who uses the card, by process number (`nvidia-smi --query-compute-apps`, the graphics ones, `nvidia-smi pmon`).

    None, with a problem, where that is not visible from here. `hidden`: this is a container with its own numbers.
    A process is looked up once, as long as it stays; what it uses of the machine at each reading, `now_s` by a
    monotonic clock. Raises `CardLostError` and `NvmlGoneError`.
    """
    lists = (("compute", runner.ask(state, _COMPUTE)), ("graphics", runner.ask(state, _GRAPHICS)))
    if all(result is None for _, result in lists):
        return None
    use = merged(lists, card.memory_total_bytes)
    if hidden and not use:
        runner.set_missing(state, _COMPUTE, HIDDEN, problem=True)
        return None
    known, state.known_processes = state.known_processes, {}
    if not hidden:
        for pid in use:
            who = known.get(pid)
            state.known_processes[pid] = who if who is not None and who.name is not None else facts(pid)
    busy: dict[int, float] = {}
    moving: dict[int, float] = {}
    if use:
        since = state.processes_seen
        query = Query("process_utilization", lambda n, h: nvmlDeviceGetProcessUtilization(n, h, since))
        samples = list(runner.ask(state, query) or ())
        moving, _ = busy_percent(samples, since, "memUtil")
        busy, state.processes_seen = busy_percent(samples, since)
    rows = []
    seen, state.cpu_seen = state.cpu_seen, {}
    for pid, (kinds, memory) in sorted(use.items()):
        who = state.known_processes.get(pid, ProcessFacts())
        load = ProcessLoad() if hidden else load_of(pid)
        cpu = cpu_percent(load, seen.get(pid), now_s)
        if load.cpu_s is not None:
            state.cpu_seen[pid] = now_s, load.cpu_s
        rows.append(
            ProcessUse(
                pid, who.name, memory, who.user, who.command, ", ".join(kinds), busy.get(pid), moving.get(pid),
                cpu, load.memory_bytes, load.running_s,
            )
        )  # fmt: skip
    return tuple(rows)
