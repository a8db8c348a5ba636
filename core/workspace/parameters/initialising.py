"""Carries out `Initialise`: new initial values for one tensor, or every weight below a module. Runs on the jobs thread.

Numbers come from a separate generator, so that the same seed gives the same values and the global generator is
untouched.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from devexplorer.core.base import (
    BadInput,
    DevExplorerError,
    MoveFailed,
    ProgressMonitor,
    count_text,
    first_line,
    quoted,
    variable,
)
from devexplorer.core.models import device_id
from devexplorer.core.records import Answer, Event, Fact, Initialise, Values, ValuesDescribed
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.parameters.describing import refuse_without_values, values_of
from devexplorer.core.workspace.parameters.rows_text import value_text
from devexplorer.core.workspace.parameters.rules import Rule, chosen, refuse_tensor
from devexplorer.core.workspace.targets import Target
from devexplorer.core.workspace.workspace import Workspace

BINS = 64
_ZEROS = chosen("zeros", {})[0]
Fill = tuple[str, Tensor, Rule]
"""Path, tensor, and the rule that it gets."""


def initialise(workspace: Workspace, command: Initialise, progress: ProgressMonitor) -> CommandResult:
    """Give the target new initial values; all of it or nothing."""
    rule, options = chosen(command.rule, command.options)
    target = workspace.find(command.target)
    target.refuse_waiting("it cannot be initialised")
    fills = _fills(target, command, rule, options)
    alone = fills[0][1] if isinstance(target.thing, Tensor) else None
    before = None if alone is None else _described(workspace, command.target, alone, progress)
    within = target.path if alone is None else target.holder
    with workspace.changing(f"the initialisation of {command.target}", target.name, values=True, within=within):
        _fill(fills, options, command.seed, progress)
    now = None if alone is None else _described(workspace, command.target, alone, progress)
    events: tuple[Event, ...] = () if now is None else (ValuesDescribed(values=now, before=before),)
    answer = Answer(
        title=f"{command.target} has new values",
        words=_words(workspace, target, command, rule, options, fills, before, now),
        facts=_facts(before, now),
        code=_code(target, command, rule, options, fills),
        subject=target.name,
    )
    return CommandResult(answer, workspace.snapshots([target.name]), events=events)


def _fills(target: Target, command: Initialise, rule: Rule, options: dict[str, float]) -> list[Fill]:
    """What gets which rule, in the order in which it is drawn."""
    if isinstance(target.thing, Tensor):
        refuse_without_values(command.target, target.thing)
        refuse_tensor(command.target, command.rule, rule, options, target.thing)
        return [(target.path, target.thing, rule)]
    below = [(path, tensor) for path, tensor in target.parameters() if tensor.is_floating_point() and tensor.numel()]
    fills = [
        (path, tensor, _ZEROS if rule.fans and tensor.dim() < 2 else rule)
        for path, tensor in below
        if tensor.dim() > 1 or command.biases
    ]
    if not fills:
        hint = "; with biases it would get those of one dimension" if below else ""
        raise BadInput(f"'{command.target}' has no weights of two dimensions or more{hint}")
    for path, tensor, own in fills:
        refuse_tensor(path, command.rule, own, {} if own is _ZEROS else options, tensor)
    return fills


def _described(workspace: Workspace, title: str, tensor: Tensor, progress: ProgressMonitor) -> Values:
    return values_of(workspace, title, tensor, BINS, exact=False, progress=progress)


def _drawn_on(tensor: Tensor) -> str:
    """Where numbers for this tensor are drawn: on its own device, which takes no generator of another."""
    return "cpu" if tensor.device.type == "meta" else device_id(tensor.device)


def _fill(fills: list[Fill], options: dict[str, float], seed: int, progress: ProgressMonitor) -> None:
    generators: dict[str, torch.Generator] = {}
    try:
        with torch.no_grad():
            for index, (path, tensor, rule) in enumerate(fills):
                progress.stop_if_cancelled("all values are as they were before")
                progress.report(index / len(fills), path)
                place = _drawn_on(tensor)
                if place not in generators:
                    generators[place] = torch.Generator(place).manual_seed(seed + len(generators))
                rule.fill(tensor.detach(), options, generators[place])
    except DevExplorerError:
        raise
    except Exception as error:
        raise MoveFailed(f"PyTorch refused: {first_line(error)}; nothing has changed") from error


def _words(
    workspace: Workspace,
    target: Target,
    command: Initialise,
    rule: Rule,
    options: dict[str, float],
    fills: list[Fill],
    before: Values | None,
    now: Values | None,
) -> str:
    drawn = rule.words.format(**options)
    if now is not None:
        words = f"Its values are now {drawn}."
        if before is not None and before.std is not None and now.std is not None:
            words += (
                f" The mean went from {value_text(before.mean)} to {value_text(now.mean)}, the standard deviation from "
                f"{value_text(before.std)} to {value_text(now.std)}."
            )
        words += target.changed_too
    else:
        weights = sum(own is rule for _, _, own in fills)
        words = f"{count_text(weights, 'parameter')} below it: {drawn}." if weights else ""
        zeroed = [path for path, _, own in fills if own is not rule]
        if zeroed:
            words += f" {count_text(len(zeroed), 'parameter')} of one dimension got zeros"
            scales = sum(path.rpartition(".")[2] == "weight" for path in zeroed)
            words += (
                f"; {count_text(scales, 'scale')} of normalisation layers among them, which lets nothing through."
                if scales
                else "."
            )
    if rule.random:
        words += f" Seed {command.seed} reproduces these values; the global generator is untouched."
    optimizer = workspace.extras(target.name).optimizer
    if optimizer is not None and any(optimizer.state.get(tensor) for _, tensor, _ in fills):
        words += " The optimizer's state belongs to the old values."
    return words.strip()


def _facts(before: Values | None, now: Values | None) -> tuple[Fact, ...]:
    if before is None or now is None:
        return ()
    pairs = (
        ("mean", before.mean, now.mean),
        ("standard deviation", before.std, now.std),
        ("minimum", before.minimum, now.minimum),
        ("maximum", before.maximum, now.maximum),
    )
    return (
        *(Fact(label, f"{value_text(old)} → {value_text(new)}") for label, old, new in pairs),
        Fact("zeros", f"{before.zeros:,} → {now.zeros:,}"),
    )


# --- code


def _code(target: Target, command: Initialise, rule: Rule, options: dict[str, float], fills: list[Fill]) -> str:
    """What gives the same values."""
    lines = ["import torch", ""]
    places = list(dict.fromkeys(_drawn_on(tensor) for _, tensor, _ in fills))
    made = [
        f"torch.Generator({'' if place == 'cpu' else quoted(place)}).manual_seed({command.seed + n})"
        for n, place in enumerate(places)
    ]
    if rule.random and len(places) == 1:
        lines.append(f"_generator = {made[0]}")
    elif rule.random:
        entries = ", ".join(f"{quoted(place)}: {item}" for place, item in zip(places, made, strict=True))
        lines.append(f"_generators = {{{entries}}}")
    statement = rule.code.format(
        p="_p" if isinstance(target.thing, nn.Module) or "\n" in rule.code else target.code(), **options
    )
    pick = (
        '_generator = _generators.get(str(_p.device), _generators.get("cpu"))\n'
        if rule.random and len(places) > 1
        else ""
    )
    if isinstance(target.thing, Tensor):
        bind = f"_p = {target.code()}\n" if "\n" in rule.code else ""
        return "\n".join([*lines, "with torch.no_grad():", _indented(bind + statement, 1)])
    model = f"{variable(target.name)}.get_submodule({quoted(target.path)})" if target.path else variable(target.name)
    lines += ["with torch.no_grad():", f"    for _p in {model}.parameters():"]
    if not command.biases:
        lines += ["        if _p.dim() > 1:", _indented(pick + statement, 3)]
    elif rule.fans:
        zeros = _ZEROS.code.format(p="_p")
        lines += ["        if _p.dim() > 1:", _indented(pick + statement, 3), "        else:", _indented(zeros, 3)]
    else:
        lines.append(_indented(pick + statement, 2))
    return "\n".join(lines)


def _indented(text: str, levels: int) -> str:
    return "\n".join("    " * levels + line for line in text.splitlines())
