"""Rules for initial values: their options, which tensors they make sense for, how they are written in Python. Any
thread.

Xavier: X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
Kaiming: K. He et al., "Delving deep into rectifiers", 2015. Both draw so that the variance of activations (or
gradients) stays the same from layer to layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from devexplorer.core.base import BadInput, shape_text, suggestion
from devexplorer.core.models import dtype_name, refuse_value

Options = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rule:
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


def _scaled(function: str, option: str, default: float, distribution: str) -> Rule:
    """A rule of `torch.nn.init` that scales by fan-in and fan-out: Xavier, with a gain, or Kaiming, with a slope."""
    draw = getattr(torch.nn.init, function)
    goal = {
        "gain": "keeps the variance from layer to layer (Xavier, gain {gain:g})",
        "a": "keeps the variance through ReLUs (Kaiming, slope {a:g} below zero)",
    }
    return Rule(
        {option: default},
        lambda t, o, g: draw(t, o[option], generator=g),
        f"torch.nn.init.{function}({{p}}, {option}={{{option}!r}}, generator=_generator)",
        f"{distribution}, as wide as {goal[option]}",
        fans=True,
    )


RULES: Mapping[str, Rule] = {
    "normal": Rule(
        {"mean": 0.0, "std": 1.0},
        lambda t, o, g: torch.nn.init.normal_(t, o["mean"], o["std"], generator=g),
        "torch.nn.init.normal_({p}, mean={mean!r}, std={std!r}, generator=_generator)",
        "drawn from a normal distribution with mean {mean:g} and standard deviation {std:g}",
    ),
    "uniform": Rule(
        {"low": 0.0, "high": 1.0},
        lambda t, o, g: torch.nn.init.uniform_(t, o["low"], o["high"], generator=g),
        "torch.nn.init.uniform_({p}, {low!r}, {high!r}, generator=_generator)",
        "drawn evenly between {low:g} and {high:g}",
    ),
    "constant": Rule(
        {"value": 0.0},
        lambda t, o, g: torch.nn.init.constant_(t, o["value"]),
        "torch.nn.init.constant_({p}, {value!r})",
        "{value:g} everywhere",
        random=False,
    ),
    "zeros": Rule(
        {}, lambda t, o, g: torch.nn.init.zeros_(t), "torch.nn.init.zeros_({p})", "0 everywhere", random=False
    ),
    "ones": Rule({}, lambda t, o, g: torch.nn.init.ones_(t), "torch.nn.init.ones_({p})", "1 everywhere", random=False),
    "xavier-uniform": _scaled("xavier_uniform_", "gain", 1.0, "drawn evenly"),
    "xavier-normal": _scaled("xavier_normal_", "gain", 1.0, "normally distributed"),
    "kaiming-uniform": _scaled("kaiming_uniform_", "a", 0.0, "drawn evenly"),
    "kaiming-normal": _scaled("kaiming_normal_", "a", 0.0, "normally distributed"),
    "piecewise": Rule(
        {"low": -10.0, "high": 10.0, "threshold": 5.0},
        _piecewise,
        "torch.nn.init.uniform_({p}, {low!r}, {high!r}, generator=_generator)\n{p}.mul_({p}.abs() >= {threshold!r})",
        "drawn evenly between {low:g} and {high:g}, kept where the size is {threshold:g} or more, 0 elsewhere",
    ),
}


def chosen(rule: str, options: Options) -> tuple[Rule, dict[str, float]]:
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


def refuse_tensor(title: str, name: str, rule: Rule, values: Options, tensor: Tensor) -> None:
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
