"""The numbers behind `fit_cost_model.py`: the cost model for many steps at once, as arrays with derivatives, and its
fit. No device; numpy only.

The most likely parameters given their priors (log-normal, from `resources/cost_model.csv`) and errors of the logarithm
of seconds that follow Student's t, so that a row with a slow host does not bend the rest: Gauss-Newton with
reweighting and damping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.devices.profiles import Profile, resource_rows
from devexplorer.core.virtual.device.cost import KNEE, HostCall, Term, Work, terms

Floats = npt.NDArray[np.float64]
ERROR = 0.10
"""One standard deviation of the logarithm of a step's seconds that the model does not explain."""
FREEDOM = 3.0
"""Degrees of freedom of Student's t: about a tenth of the rows may be far off."""
ROUNDS = 60
PAGEABLE = "pageable copy"
"""A parameter of published rows alone: bytes per second from pageable memory, beside the workers of a data loader."""
PAGEABLE_PRIOR = (4e9, 1.6)


class Step(NamedTuple):
    """A published step, and what happens in it."""

    card: Profile
    seconds: float
    work: Iterable[tuple[Work, int]]
    calls: Iterable[tuple[HostCall, int]] = ()
    pageable_bytes: int = 0


@dataclass(frozen=True)
class Priors:
    """Of every parameter, in logarithms."""

    names: tuple[str, ...]
    mean: Floats
    deviation: Floats

    def index(self, name: str) -> int:
        """Position of a parameter."""
        return self.names.index(name)


def read_priors() -> Priors:
    """From the resource, and `PAGEABLE`."""
    rows = [
        (row["parameter"], float(row["prior"]), float(row["prior_uncertainty"]))
        for row in resource_rows("cost_model.csv")
    ]
    rows.append((PAGEABLE, *PAGEABLE_PRIOR))
    names, means, factors = zip(*rows, strict=True)
    return Priors(names, np.log(means), np.log(factors))


class _Part:
    """One of the terms of every kernel: base seconds, and exponents as (kernel, parameter, exponent)."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.entries: list[tuple[int, int, float]] = []

    def add(self, term: Term | None, index: dict[str, int]) -> None:
        kernel = len(self.seconds)
        self.seconds.append(0.0 if term is None else term.seconds)
        if term is not None and term.seconds:
            self.entries += [(kernel, index[name], power) for name, power in term.parameters.items() if name in index]

    def arrays(self) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
        kernels, parameters, powers = zip(*self.entries, strict=True) if self.entries else ((), (), ())
        return (
            np.array(self.seconds),
            np.array(kernels, dtype=np.int64),
            np.array(parameters, dtype=np.int64),
            np.array(powers, dtype=np.float64),
        )


class Design:
    """All steps as arrays."""

    def __init__(self, steps: Sequence[Step], priors: Priors) -> None:
        index = {name: position for position, name in enumerate(priors.names)}
        self.priors, self.count = priors, len(steps)
        self.measured = np.log([step.seconds for step in steps])
        rows, times, parts = [], [], (_Part(), _Part(), _Part())
        calls = np.zeros((len(steps), len(index)))
        pageable = np.zeros(len(steps))
        for row, step in enumerate(steps):
            for work, repeated in step.work:
                for part, term in zip(parts, terms(work, step.card), strict=True):
                    part.add(term, index)
                rows.append(row)
                times.append(repeated)
            for call, repeated in step.calls:
                calls[row, index[call]] += repeated
            pageable[row] = step.pageable_bytes
        self.rows, self.times = np.array(rows), np.array(times, dtype=np.float64)
        self.parts = [part.arrays() for part in parts]
        self.calls, self.pageable = calls, pageable
        self.starts = np.where(self.parts[1][0] > 0, 1.0, 0.0)

    def logarithms(self, theta: Floats) -> tuple[Floats, Floats]:
        """Logarithm of each step's seconds, and its derivatives by the parameters (steps x parameters)."""
        priors, size = self.priors, len(theta)
        (compute, memory, layout) = (self._part(part, theta) for part in self.parts)
        start = self.starts * math.exp(theta[priors.index("kernel")])
        powers = compute**KNEE + memory**KNEE
        roof = powers ** (1 / KNEE)
        safe = np.where(powers > 0, powers, 1.0)
        device = np.bincount(self.rows, (roof + layout + start) * self.times, self.count)
        slopes = np.zeros((self.count, size))
        for part, weight in zip(
            self.parts, (roof * compute**KNEE / safe, roof * memory**KNEE / safe, layout), strict=True
        ):
            _, kernels, parameters, exponents = part
            np.add.at(slopes, (self.rows[kernels], parameters), (weight * self.times)[kernels] * exponents)
        slopes[:, priors.index("kernel")] += np.bincount(self.rows, start * self.times, self.count)
        hosts = self.calls * np.exp(theta)
        host = hosts.sum(1)
        step = (device**KNEE + host**KNEE) ** (1 / KNEE)
        slopes *= ((device / step) ** (KNEE - 1))[:, None]
        slopes += hosts * ((host / step) ** (KNEE - 1))[:, None]
        copied = self.pageable * math.exp(-theta[priors.index(PAGEABLE)])
        slopes[:, priors.index(PAGEABLE)] -= copied
        seconds = step + copied
        return np.log(seconds), slopes / seconds[:, None]

    def _part(self, part: tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64], Floats], theta: Floats) -> Floats:
        seconds, kernels, parameters, exponents = part
        change = np.bincount(kernels, theta[parameters] * exponents, len(seconds)) if len(kernels) else 0.0
        result: Floats = seconds * np.exp(change)
        return result


class Fitted(NamedTuple):
    """What a fit gives."""

    theta: Floats
    """Logarithms of the parameters."""
    deviation: Floats
    """One standard deviation of each."""


def fit(design: Design) -> Fitted:
    """The most likely parameters."""
    mean, weight = design.priors.mean, 1 / design.priors.deviation**2

    def cost(theta: Floats) -> float:
        error = (design.logarithms(theta)[0] - design.measured) / ERROR
        misfit = (FREEDOM + 1) / 2 * np.log1p(error**2 / FREEDOM).sum()
        return float(misfit + 0.5 * ((theta - mean) ** 2 * weight).sum())

    theta, damping = mean.copy(), 1e-2
    now = cost(theta)
    for _ in range(ROUNDS):
        predicted, slopes = design.logarithms(theta)
        error = (predicted - design.measured) / ERROR
        trust = (FREEDOM + 1) / (FREEDOM + error**2)
        curvature = (slopes.T * trust) @ slopes / ERROR**2 + np.diag(weight)
        gradient = slopes.T @ (trust * error) / ERROR + (theta - mean) * weight
        while damping < 1e6:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
            then = cost(theta + step)
            if then <= now:
                break
            damping *= 4
        else:
            break
        gained, theta, now, damping = now - then, theta + step, then, max(damping / 4, 1e-4)
        if gained < 1e-3:
            break
    return Fitted(theta, np.sqrt(np.diag(np.linalg.inv(curvature))))


def left_out(steps: Sequence[Step], groups: Sequence[str], priors: Priors, always: Sequence[Step] = ()) -> Floats:
    """Logarithm of seconds of each step, predicted from a fit that has seen no step of its group. `always`: steps that
    every fit sees."""
    result = np.zeros(len(steps))
    for group in dict.fromkeys(groups):
        seen = [step for step, name in zip(steps, groups, strict=True) if name != group]
        unseen = [position for position, name in enumerate(groups) if name == group]
        fitted = fit(Design([*seen, *always], priors))
        result[unseen] = Design([steps[position] for position in unseen], priors).logarithms(fitted.theta)[0]
    return result
