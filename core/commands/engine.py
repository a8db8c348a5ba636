"""What each command means: carrying it out and sending what follows from it. Runs on the jobs thread.

Commands about objects go to the workspace; the few about the engine itself are dealt with here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from devexplorer.core.base.formats import sentence
from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.commands.dispatch import dispatch
from devexplorer.core.memory import commands
from devexplorer.core.records.messages import (
    AddVirtual,
    Answer,
    Cancel,
    Command,
    Fact,
    Moved,
    ObjectRemoved,
    OpenSnapshot,
    RecordAllocator,
    Redid,
    ReleaseCache,
    SaveSnapshot,
    SetThreads,
    SideEffects,
    StopBenchmark,
    Undid,
)
from devexplorer.core.virtual import backend as virtual

if TYPE_CHECKING:
    from devexplorer.core.engine.engine import Engine


def handle(engine: Engine, command: Command) -> None:
    """Carry out one command and send what follows from it; raises when it could not be done."""
    match command:
        case StopBenchmark() | Cancel():
            pass  # took effect when it arrived
        case AddVirtual(spec=spec):
            names = engine.add_virtual(spec)
            engine.send_devices(command.request)
            _say(engine, command, _added(engine, spec, names))
            virtual.warm_up()
        case SetThreads(threads=threads):
            before = engine.torch.threads
            engine.torch.set_threads(threads)
            engine.send_devices(command.request)
            _say(engine, command, _threads_set(before, threads))
        case ReleaseCache() | RecordAllocator() | SaveSnapshot() | OpenSnapshot():
            _say(engine, command, commands.handle(engine, command))
        case _:
            _on_workspace(engine, command)


def _on_workspace(engine: Engine, command: Command) -> None:
    progress = ProgressMonitor(engine.progress(command.request), engine.cancelled(command.request))
    outcome = dispatch(engine.workspace, command, progress)
    for snapshot in outcome.changed:
        engine.send(engine.told.news(snapshot, command.request))
    for name in outcome.removed:
        engine.told.forget(name)
        engine.send(ObjectRemoved(request=command.request, name=name))
    for event in outcome.events:
        engine.send(msgspec.structs.replace(event, request=command.request))
    if outcome.undid is not None:
        engine.send(Undid(request=command.request, of=outcome.undid.request))
    if outcome.redid is not None:
        engine.send(Redid(request=command.request, command=outcome.redid))
    if outcome.side_effects:
        engine.send(SideEffects(request=command.request, effects=outcome.side_effects))
    if outcome.report is not None:
        engine.send(
            Moved(request=command.request, report=outcome.report, time_unix_s=engine.clock(), undoes=outcome.undoes)
        )
    _say(engine, command, outcome.answer)
    engine.send(msgspec.structs.replace(engine.workspace.undo_state(), request=command.request))


def _say(engine: Engine, command: Command, answer: Answer) -> None:
    engine.send(stamped(engine, command, answer))


def stamped(engine: Engine, command: Command, answer: Answer) -> Answer:
    """The answer to this command, now; where the command was about one part of the subject, so is the answer."""
    targets = getattr(command, "targets", None) or (getattr(command, "target", None) or "",)
    name, _, path = targets[0].partition(":")
    part = path if len(targets) == 1 and name == answer.subject else ""
    return msgspec.structs.replace(answer, request=command.request, part=part, time_unix_s=engine.clock())


def _added(engine: Engine, spec: str, names: list[str]) -> Answer:
    visible = "" if engine.visible_devices is None else f", visible={json.dumps(engine.visible_devices)}"
    added = f"add_virtual_gpus({json.dumps(spec, ensure_ascii=False)}{visible})"
    code = f"from devexplorer.core.virtual.backend import add_virtual_gpus\n\n{added}"
    hidden = [info for info in engine.fleet.infos() if info.simulated and not info.usable]
    facts = [Fact(name, f"{engine.fleet.info(name).name}, simulated") for name in names]
    facts += [Fact(info.id, f"{info.name}, simulated, hidden") for info in hidden]
    if not names:
        words = f"{sentence(hidden[-1].reason or '')} Choose the visible devices anew to use what was added."
        return Answer(
            title="They are there, and the engine does not see them", words=words, facts=tuple(facts), code=code
        )
    words = (
        "Values are real: the CPU computes them. Memory is counted as CUDA's caching allocator would count it. Time is"
        " modelled from the datasheet, on a simulated clock. Everything about these devices is marked simulated."
    )
    title = f"{names[0]} is here" if len(names) == 1 else f"{names[0]} to {names[-1]} are here"
    return Answer(title=title, words=words, facts=tuple(facts), code=code)


def _threads_set(before: int, threads: int) -> Answer:
    words = f"An operation on the CPU now uses {threads} {'thread' if threads == 1 else 'threads'} instead of {before}."
    if threads == before:
        words = f"An operation on the CPU uses {threads} {'thread' if threads == 1 else 'threads'}, as before."
    words += " The device cpu is all cores and all memory at once; there is no cpu:1."
    return Answer(
        title=f"{threads} CPU {'thread' if threads == 1 else 'threads'}",
        words=words,
        code=f"import torch\n\ntorch.set_num_threads({threads})",
    )
