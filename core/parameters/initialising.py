"""Carries out `Initialise`: new initial values for one tensor, or every weight below a module. Runs on the jobs thread.

Numbers come from a separate generator, so that the same seed gives the same values and the global generator is
untouched."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
    shape_text,
    suggestion,
    variable,
)
from devexplorer.core.models import device_id, dtype_name, refuse_value
from devexplorer.core.parameters.describing import refuse_without_values, value_text, values_of
from devexplorer.core.parameters.records import Initialise, Values, ValuesDescribed
from devexplorer.core.records import Answer, Event, Fact
from devexplorer.core.workspace.changes import CommandResult
from devexplorer.core.workspace.placement import Target
from devexplorer.core.workspace.workspace import Workspace

# Rules for initial values: their options, which tensors they make sense for, how they are written in Python. Any
# thread.
# Xavier: X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
# Kaiming: K. He et al., "Delving deep into rectifiers", 2015. Both draw so that the variance of activations (or
# gradients) stays the same from layer to layer.

Options = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class InitialisingRule:
    """One rule."""

    options: Options
    """Every option with what it is when left out: as `torch.nn.init` has it; the tutorial's for `piecewise`."""
    fill: Callable[[Tensor, Options, torch.Generator | None], object]
    code: str
    """The statement, with `{p}` for the tensor and the options by name."""
    words: str
    random: bool = True
    fans: bool = False
    """Whether it needs a fan-in and a fan-out, so two dimensions at least."""


def _piecewise(tensor: Tensor, options: Options, generator: torch.Generator | None) -> None:
    torch.nn.init.uniform_(tensor, options["low"], options["high"], generator=generator)
    tensor.mul_(tensor.abs() >= options["threshold"])


def _scaled(function: str, option: str, default: float, distribution: str) -> InitialisingRule:
    """A rule of `torch.nn.init` that scales by fan-in and fan-out: Xavier, with a gain, or Kaiming, with a slope."""
    draw = getattr(torch.nn.init, function)
    goal = {
        "gain": "keeps the variance from layer to layer (Xavier, gain {gain:g})",
        "a": "keeps the variance through ReLUs (Kaiming, slope {a:g} below zero)",
    }
    return InitialisingRule(
        {option: default},
        lambda t, o, g: draw(t, o[option], generator=g),
        f"torch.nn.init.{function}({{p}}, {option}={{{option}!r}}, generator=_generator)",
        f"{distribution}, as wide as {goal[option]}",
        fans=True,
    )


RULES: Mapping[str, InitialisingRule] = {
    "normal": InitialisingRule(
        {"mean": 0.0, "std": 1.0},
        lambda t, o, g: torch.nn.init.normal_(t, o["mean"], o["std"], generator=g),
        "torch.nn.init.normal_({p}, mean={mean!r}, std={std!r}, generator=_generator)",
        "drawn from a normal distribution with mean {mean:g} and standard deviation {std:g}",
    ),
    "uniform": InitialisingRule(
        {"low": 0.0, "high": 1.0},
        lambda t, o, g: torch.nn.init.uniform_(t, o["low"], o["high"], generator=g),
        "torch.nn.init.uniform_({p}, {low!r}, {high!r}, generator=_generator)",
        "drawn evenly between {low:g} and {high:g}",
    ),
    "constant": InitialisingRule(
        {"value": 0.0},
        lambda t, o, g: torch.nn.init.constant_(t, o["value"]),
        "torch.nn.init.constant_({p}, {value!r})",
        "{value:g} everywhere",
        random=False,
    ),
    "zeros": InitialisingRule(
        {}, lambda t, o, g: torch.nn.init.zeros_(t), "torch.nn.init.zeros_({p})", "0 everywhere", random=False
    ),
    "ones": InitialisingRule(
        {}, lambda t, o, g: torch.nn.init.ones_(t), "torch.nn.init.ones_({p})", "1 everywhere", random=False
    ),
    "xavier-uniform": _scaled("xavier_uniform_", "gain", 1.0, "drawn evenly"),
    "xavier-normal": _scaled("xavier_normal_", "gain", 1.0, "normally distributed"),
    "kaiming-uniform": _scaled("kaiming_uniform_", "a", 0.0, "drawn evenly"),
    "kaiming-normal": _scaled("kaiming_normal_", "a", 0.0, "normally distributed"),
    "piecewise": InitialisingRule(
        {"low": -10.0, "high": 10.0, "threshold": 5.0},
        _piecewise,
        "torch.nn.init.uniform_({p}, {low!r}, {high!r}, generator=_generator)\n{p}.mul_({p}.abs() >= {threshold!r})",
        "drawn evenly between {low:g} and {high:g}, kept where the size is {threshold:g} or more, 0 elsewhere",
    ),
}


def chosen(rule: str, options: Options) -> tuple[InitialisingRule, dict[str, float]]:
    """The rule and all of its options; `BadInput` names everything that is wrong with either."""
    if rule not in RULES:
        raise BadInput(f"there is no rule '{rule}'; {suggestion(rule, RULES)}")
    found = RULES[rule]
    findings = []
    for name, value in options.items():
        if name not in found.options:
            hint = suggestion(name, found.options) if found.options else "it has no options"
            findings.append(f"the rule '{rule}' has no option '{name}'; {hint}")
        elif not math.isfinite(value):
            findings.append(f"{name} = {value:g} is no number to draw with")
    values = {**found.options, **{name: float(value) for name, value in options.items()}}
    if not findings:
        findings += _wrong(values)
    if findings:
        raise BadInput(*findings)
    return found, values


def _wrong(values: Options) -> list[str]:
    findings = []
    if values.get("std", 0.0) < 0:
        findings.append(f"a standard deviation of {values['std']:g} is not possible; take 0 or more")
    if "low" in values and values["low"] > values["high"]:
        findings.append(f"low = {values['low']:g} is above high = {values['high']:g}; exchange them")
    if values.get("threshold", 0.0) < 0:
        findings.append(f"a threshold of {values['threshold']:g} keeps everything; take 0 or more")
    return findings


def refuse_tensor(title: str, name: str, rule: InitialisingRule, values: Options, tensor: Tensor) -> None:
    """Raise `BadInput` where the rule makes no sense for the tensor."""
    dtype = dtype_name(tensor.dtype)
    if tensor.numel() == 0:
        raise BadInput(f"'{title}' has no elements, so there is nothing to initialise")
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        raise BadInput(
            f"several elements of '{title}' are one place in memory (it was made with expand); clone() gives each"
            " its own"
        )
    if tensor.is_inference():
        raise BadInput(
            f"'{title}' was made in inference mode and cannot be changed in place; clone() gives one that can"
        )
    if tensor.is_complex():
        raise BadInput(f"'{title}' is {dtype}; the rules are for real numbers")
    if not tensor.is_floating_point() and rule.random:
        raise BadInput(
            f"'{title}' is {dtype}, and {name} gives fractions; whole numbers can be constant, zeros or ones"
        )
    if tensor.is_floating_point() and tensor.element_size() == 1 and rule.random:
        raise BadInput(f"'{title}' is {dtype}, in which PyTorch cannot draw numbers; cast it to float32 first")
    if "value" in values:
        refuse_value(tensor.dtype, values["value"])
    if rule.fans and tensor.dim() < 2:
        raise BadInput(
            f"'{title}' is {shape_text(tuple(tensor.shape))}: {name} needs a fan-in and a fan-out, so two dimensions at"
            " least; take normal, uniform or a constant"
        )


BINS = 64
_ZEROS = chosen("zeros", {})[0]
Fill = tuple[str, Tensor, InitialisingRule]
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


def _fills(target: Target, command: Initialise, rule: InitialisingRule, options: dict[str, float]) -> list[Fill]:
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
    rule: InitialisingRule,
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


def _code(
    target: Target, command: Initialise, rule: InitialisingRule, options: dict[str, float], fills: list[Fill]
) -> str:
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
