"""Carries out several commands as one: all or none, one step of Undo. Jobs thread."""

from __future__ import annotations

import msgspec

from devexplorer.core.base import DevExplorerError, ProgressMonitor, RollbackFailed
from devexplorer.core.commands.registry import spec_of
from devexplorer.core.records import Combine, Command, Move, ObjectSnapshot, Steps
from devexplorer.core.workspace import CommandResult, StepFailed, Workspace


def steps(workspace: Workspace, command: Steps, progress: ProgressMonitor) -> CommandResult:
    """One after the other; the answer is that of the last, with what the others did before it."""
    results: list[CommandResult] = []
    copies: dict[str, str] = {}
    count = len(command.commands)
    for index, given in enumerate(command.commands):
        step = _on_copies(given, copies)
        share = ProgressMonitor(
            lambda done, text, part="", index=index: progress.report((index + done) / count, text, part),
            progress.cancelled,
        )
        try:
            progress.stop_if_cancelled("nothing has changed")
            results.append(spec_of(step).resolve()(workspace, step, share))
        except RollbackFailed:
            raise
        except DevExplorerError as error:
            raise StepFailed(error, step, command.commands[:index]) from error
        report = results[-1].report
        if isinstance(step, Move) and report is not None:
            copies.update(zip(dict.fromkeys(step.targets), report.created, strict=False))
    return _joined(results, command.title)


def _on_copies(command: Command, copies: dict[str, str]) -> Command:
    if not isinstance(command, Combine):
        return command
    left, right = (copies.get(name, name) for name in (command.left, command.right))
    return msgspec.structs.replace(command, left=left, right=right)


def _joined(results: list[CommandResult], title: str) -> CommandResult:
    *before, last = results
    alive: dict[str, ObjectSnapshot] = {}
    gone: dict[str, None] = {}
    for item in results:
        for snapshot in item.changed:
            alive[snapshot.name] = snapshot
            gone.pop(snapshot.name, None)
        for name in item.removed:
            alive.pop(name, None)
            gone[name] = None
    titles = (f"{item.answer.title}." for item in before)
    answer = msgspec.structs.replace(
        last.answer,
        title=f"{title[:1].upper()}{title[1:]} is repeated" if title else last.answer.title,
        words=f"{len(results)} steps, one step of Undo." if title else " ".join((*titles, last.answer.words)),
        facts=() if title else last.answer.facts,
        code="\n".join(filter(None, (item.answer.code for item in results))),
        offers=tuple(offer for item in results[::-1] for offer in item.answer.offers),
    )
    return CommandResult(
        answer,
        tuple(alive.values()),
        tuple(gone),
        next((item.report for item in results[::-1] if item.report and not item.report.already_there), None),
        tuple(effect for item in results for effect in item.side_effects),
        tuple(event for item in results for event in item.events),
        any(item.devices_changed for item in results),
    )
