"""Where the models of a running script are, and what goes from one device to another at every step, as far as that can
be seen from outside. Thread `observe-answer`."""

from __future__ import annotations

import os
import sys
from collections import Counter

from devexplorer.core.base import Message, bytes_by_device_text, bytes_text, count_text
from devexplorer.core.isolation.source_location import code_lines, place_at
from devexplorer.core.observe.observer import Observation
from devexplorer.core.observe.phases import WARM_UP_STEPS, Crossing, line_at, package_line, place_of
from devexplorer.core.observe.places import is_own
from devexplorer.core.observe.weights import ModelWeight
from devexplorer.core.records import Answer, Fact, Finding

MOST_PLACES = 12
OFTEN = 0.5
"""From so many a step on it is said of every step."""
SAME = 0.05
WAYS = {
    "host": "copies to the CPU",
    "device": "copies to the device",
    "between": "copies from one device to another",
}
FIXES = {
    "device-hop": "Keep what forward needs on the model's device: as a buffer, or made there with device=x.device.",
    "hidden-sync": "Read values back less often, every hundredth step say, or keep sums on the device (loss.detach()).",
    "inputs": "Inputs have to get there once; pin_memory=True and non_blocking=True let that go on beside the work.",
}
"""What would be right, by rule."""
UNSEEN = (
    "What cannot be seen from outside: operands of operations inside a model, dtypes of activations, and what is not on"
    " the main thread. To check a model operation by operation, open it here and choose Check."
)


def weights_of(observation: Observation) -> list[tuple[str, ModelWeight]]:
    """The models that are there by their classes, as they were weighed last. Any thread."""
    found: list[tuple[int, str, ModelWeight]] = []
    inner: set[int] = set()
    for key, root in list(observation.roots.items()):
        if root.weight is None or root.ref() is None:
            continue
        if not root.weight.modules or root.weight.modules - inner:  # else a second wrapper of the same model
            found.append((key, root.name, root.weight))
            inner |= root.weight.modules
    return [(name, weight) for key, name, weight in found if key not in inner]


def placement_answer(observation: Observation) -> Answer:
    """See above."""
    facts: list[Fact] = []
    lines: list[str] = []
    weights = weights_of(observation)
    for name, weight in weights:
        facts += [
            Fact(f"{name}{what}", bytes_by_device_text(dict(sizes)))
            for what, sizes in (
                ("", weight.devices),
                (", gradients", weight.gradients),
                (", optimizer state", weight.states),
            )
            if sizes
        ]
        dtypes = ", ".join(f"{dtype} {bytes_text(size)}" for dtype, size in weight.dtypes.items())
        if dtypes:  # a loss has no parameters
            facts.append(Fact(f"{name}, dtypes", dtypes))
        lines += _findings(name, weight)
    crossings = _crossings(observation)
    lines += crossings or ["• No copy between devices, and no value read back from one, at a step."]
    if not weights:
        lines.insert(0, "• No model has been seen in a whole step yet.")
    return Answer(title="Where the models are", words="\n".join([*lines, UNSEEN]), facts=tuple(facts))


def _findings(name: str, weight: ModelWeight) -> list[str]:
    """What is elsewhere than it belongs."""
    found = []
    devices = Counter(place.device for place in weight.places)
    if len(devices) > 1:
        parts = ", ".join(f"{count} on {device}" for device, count in devices.most_common())
        found.append(f"• The parameters of {name} are on several devices: {parts}.")
    for what in ("gradient", "optimizer"):
        apart = [
            place
            for place in weight.places
            if (there := getattr(place, f"{what}_device")) is not None and there != place.device
        ]
        if apart:
            first, there = apart[0], getattr(apart[0], f"{what}_device")
            words = "gradients" if what == "gradient" else "optimizer state"
            found.append(
                f"• {name} has {words} on another device than the parameter, of {count_text(len(apart), 'parameter')}:"
                f" {first.name} is on {first.device}, its {words} on {there}."
            )
    return found


def _crossings(observation: Observation) -> list[str]:
    """What goes from one device to another at most steps, the most frequent first."""
    rates: Counter[tuple[str, str, str]] = Counter()
    for note, rate in _rates(observation):
        rates[note.what, _way(note), place_of(note)] += rate  # type: ignore[assignment]
    often = [(key, rate) for key, rate in rates.most_common(MOST_PLACES) if rate >= OFTEN]
    return [f"• {what} {way}, {_times(observation, rate)}: {place}" for (what, way, place), rate in often]


def _rates(observation: Observation) -> list[tuple[Crossing, float]]:
    times, _ = observation.fold.counts()
    return [(note, count / max(times.steps, 1)) for note, count in dict(times.crossings).items()]  # it goes on adding


def _way(note: Crossing) -> str:
    inside = " inside the model" if note.within and note.copied else ""
    return f"{WAYS[note.to]}{inside}" if note.copied else "reads a value back"


def crossing_findings(observation: Observation) -> list[Finding]:
    """The same as findings of the doctor, each with its line."""
    rates: Counter[tuple[str, str, str, str, int, str]] = Counter()
    for note, rate in _rates(observation):
        rule = "device-hop" if note.copied and note.to != "host" else "hidden-sync"
        line = line_at(note.code, note.instruction)
        key = rule, note.what, _way(note), note.code.co_filename, line, package_line(note)
        rates[key] += rate  # type: ignore[assignment]
    found = []
    for (rule, what, way, file, line, inner), rate in rates.most_common(MOST_PLACES):
        if rate < OFTEN:
            continue
        place = place_at(file, line, "")
        words = f"{what} {way}, {_times(observation, rate)}"
        if inner:
            words += f", at {inner}"
        inputs = rule == "device-hop" and way == WAYS["device"]
        found.append(
            Finding(
                rule=rule,
                path="",
                file=file,
                line=line,
                message=Message(f"{words}."),
                fix=Message(FIXES["inputs" if inputs else rule]),
                severity="note" if inputs else "warning",
                code=None if place is None else code_lines(place),
            )
        )
    return found


def own_files(observation: Observation) -> set[str]:
    """Of the script: its main file, and those whose lines call models and optimizers."""
    files = {str(getattr(sys.modules.get("__main__"), "__file__", None) or "")}
    files |= {code.co_filename for code, _ in (*observation.forward_stack, *observation.optimizer_stack)}
    return {os.path.abspath(file) for file in files if is_own(file) and os.path.isfile(file)}


def _times(observation: Observation, rate: float) -> str:
    if observation.fold.steps <= 2 * WARM_UP_STEPS:
        return "in the first steps"  # what follows the optimizer counts in the next one: too few for a rate
    return "once a step" if abs(rate - 1) < SAME else f"{rate:.3g} times a step"
