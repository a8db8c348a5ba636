"""What takes the time of a step: one line, and what says so. Any thread, no torch.

The largest share of the sums decides, and it has to be large: a median would hide that every fourth batch is late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from devexplorer.core.base.formats import bytes_text, count_text, percent_text
from devexplorer.core.observe.memory import Growth
from devexplorer.core.observe.phases import (
    BACKWARD,
    COPIES,
    EVALUATION,
    FORWARD,
    INPUT,
    NAMES,
    OPTIMIZER,
    RANKS,
    READ,
    REST,
    WHOLE,
    Crossing,
    StepTimes,
    lines_of,
)
from devexplorer.core.observe.places import AFTER, BEFORE, BETWEEN, COMPILED, WAITING, Within
from devexplorer.core.observe.records import ObservedModel, ParameterPlace, RunVerdict

LEAST_STEPS = 5
SURE_SHARE = 0.35
"""What is named has at least this share of a step; below that nothing stands out."""
AVOIDABLE = {"input": 0.35, "ranks": 0.35, "copies": 0.35, "read": 0.3, "evaluation": 0.35, "rest": 0.45}
"""From such a share on it is named though the model takes more: that has to be worked out, and this need not be."""
REST_SHARE = 0.2
"""From here on it is worth knowing which lines it is."""
MENTIONED_SHARE = 0.15
BACK_AND_FORTH_SHARE = 0.1
"""Of a step, for copies in both directions within a model, and what is done between them."""
OPTIMIZER_SHARE, BACKWARD_SHARE = 0.5, 0.6
BACKWARD_RATIO = 4.0
"""A backward that takes so many times as long as its forward does more than one usually does: twice is usual."""
NAMED_MODULES = 2
COPIED_SHARE = 0.1
"""Of a step, for copies, some of which are within the model."""
MOST = 0.5
OFTEN = 0.2
"""Of samples, for the second of two lines."""
LOOP_SHARE = 0.3
"""Of a phase, for lines of the script's own in a loop."""
ALWAYS = 0.95
READ_SHARE, READ_TIMES = 0.1, 5
"""Of a step, for reading values back, whatever else takes the time; or so often in a step of a model that takes it: the
host starts nothing while it waits."""
LEAST_SAMPLES = 5
CLEARLY = 2.0
"""So many times as long is longer, whatever a few samples say."""
LAUNCH_RATIO = 2.0
"""Starting the kernels takes the host so many times as long as the card works on them: they are small."""
MANY_READS = 100
"""So many `.item()` in a step are a loop."""


class RunEvidence:
    """All that a verdict is made of."""

    def __init__(
        self,
        *,
        times: StepTimes | None = None,
        steps: int = 0,
        step_seconds: float | None = None,
        rests: Counter[tuple[str | None, str]] | None = None,
        growth: Growth | None = None,
        simulated: bool = False,
        host_reads: int = 0,
        training: bool = True,
        models: tuple[ObservedModel, ...] = (),
        launches: float = 0.0,
        own: float = 0.0,
        within: Counter[str] | None = None,
        phases: Counter[Within] | None = None,
        parameters: tuple[ParameterPlace, ...] = (),
    ) -> None:
        self.times = times or StepTimes()
        self.steps = steps
        self.step_seconds = step_seconds
        self.rests = rests or Counter()
        """(where in the loop, line) -> samples of the script's own time."""
        self.growth = growth
        self.simulated = simulated
        self.host_reads = host_reads
        """Values that were read one by one from tensors on the CPU."""
        self.training = training
        self.models = models
        self.launches = launches
        self.own = own
        """See `Clock`."""
        self.within = within or Counter()
        """Lines of the model's own -> samples of the time for which the card waits for them."""
        self.phases = phases or Counter()
        """Samples of where time goes within the phases."""
        self.parameters = parameters
        """Of the largest model."""
        total = float(self.times.counted.sum())
        self.shares = [float(value) / total if total > 0 else 0.0 for value in self.times.counted]

        between = float(self.times.rests[FORWARD, BACKWARD])
        self.loss = between / total if total > 0 else 0.0
        """Share of what is between forward and backward: the loss, where that is no module."""
        self.sampling = float(self.times.rests[EVALUATION, EVALUATION]) / total if total > 0 and training else 0.0
        """Share of what is between two forward passes without gradients: the rest of sampling, or of playing a game."""

    def percent(self, phase: int) -> str:
        """`71 %`."""
        return percent_text(self.shares[phase])


def judge(evidence: RunEvidence) -> RunVerdict:
    """The verdict on one process."""
    if evidence.steps < LEAST_STEPS:
        if not evidence.steps:
            text = "Not sure: no step was seen (a step is a round of an optimizer, or of a model that is called)."
        else:
            few = count_text(evidence.steps, "step")
            text = f"Not sure: {few} seen, and a verdict needs at least {LEAST_STEPS}."
        return RunVerdict(kind="not-sure", text=text)
    found = _creeping(evidence) or _back_and_forth(evidence) or _largest(evidence)
    beside = _loop_beside(evidence, found) + _rest_beside(evidence, found) + _read_beside(evidence, found)
    beside += _copied_beside(evidence, found)
    clock = ("On the simulated clock of the virtual GPU.",) if evidence.simulated else ()
    return RunVerdict(kind=found.kind, text=found.text, evidence=(*found.evidence, *beside, *clock), place=found.place)


def _within(evidence: RunEvidence, phase: int, least: float = MOST, *, looped: bool = False) -> tuple[str, float]:
    """The line of the user's own where most of a phase is spent, and the share of all such lines (`looped`: in loops).
    Empty where that is less than `least`: it is spent in layers of torch's, say, or that is not known."""
    samples = Counter({at: count for at, count in evidence.phases.items() if at.phase == phase})
    own = Counter({at: count for at, count in samples.items() if at.line and (at.looped or not looped)})
    if samples.total() < LEAST_SAMPLES or not own or own.total() < least * samples.total():
        return "", 0.0
    return own.most_common(1)[0][0].line, own.total() / samples.total()


def _loop_beside(evidence: RunEvidence, found: RunVerdict) -> tuple[str, ...]:
    """Operations that the script starts one by one, where layers would be expected."""
    if found.kind not in ("compute-bound", "launch-bound", "backward-bound"):
        return ()
    said = []
    for phase in (FORWARD, BACKWARD):
        place, share = _within(evidence, phase, LOOP_SHARE, looped=True)
        if place and evidence.shares[phase] >= MENTIONED_SHARE:
            percent = percent_text(share)
            said.append(
                f"The script's own lines in a loop are {percent} of {NAMES[phase]}, most often at {place}: one"
                " operation on whole tensors takes less than many small ones, in backward too."
            )
    return tuple(said)


def _rest_beside(evidence: RunEvidence, found: RunVerdict) -> tuple[str, ...]:
    """Where most of the script's own time is spent, which may be the loss, beside a model that takes more."""
    _, place = _where_it_rests(evidence)
    kinds = "compute-bound", "launch-bound", "not-sure"
    if found.kind not in kinds or evidence.shares[REST] < REST_SHARE or not place:
        return ()
    if place == found.place:
        return ()
    return (f"The script's own lines are {evidence.percent(REST)} of a step, most often at {place}.",)


def _read_beside(evidence: RunEvidence, found: RunVerdict) -> tuple[str, ...]:
    """What is read back, and where, beside what the verdict is about."""
    share = evidence.shares[READ] + _rest_of_reading(evidence)
    reads = _crossings_to(evidence, "host")
    often = found.kind in ("compute-bound", "launch-bound") and reads.total() >= READ_TIMES * evidence.times.steps
    if found.kind in ("read-back-bound", "back-and-forth") or not reads or (share < READ_SHARE and not often):
        return ()
    each, place = _most_crossings(evidence, reads)
    percent = percent_text(share)
    at = f", most often at {place}" if place else ""
    return (f"Reading values back is {percent} of a step ({each} a step){at}: no kernel is started meanwhile.",)


def _copied_beside(evidence: RunEvidence, found: RunVerdict) -> tuple[str, ...]:
    """What is copied to the device in each step, by the model itself say, beside what takes longer."""
    every = _crossings_to(evidence, "device")
    notes = Counter({note: count for note, count in every.items() if note.within and not note.backward})
    if found.kind in ("copy-bound", "back-and-forth") or evidence.shares[COPIES] < COPIED_SHARE:
        return ()
    if notes.total() < evidence.times.steps:
        if evidence.shares[COPIES] < MENTIONED_SHARE or not every:
            return ()
        each, place = _most_crossings(evidence, every)
        return (
            f"Copies to the device are {evidence.percent(COPIES)} of a step ({each}), most often at {place}: pinned"
            " memory and non_blocking=True let them overlap.",
        )
    each, place = _most_crossings(evidence, notes)
    return (
        f"The model copies to the device in every step ({each}), most often at {place}: what does not change can stay"
        " there (register_buffer).",
    )


def _creeping(evidence: RunEvidence) -> RunVerdict | None:
    growth = evidence.growth
    if growth is None:
        return None
    what = "of the process" if growth.device == "cpu" else f"on {growth.device}"
    each = bytes_text(growth.bytes_per_step, 1)
    return RunVerdict(
        kind="memory-creeping",
        text=f"Memory creeping: memory {what} grows by {each} each step.",
        evidence=(
            f"From {bytes_text(growth.first_bytes, 1)} to {bytes_text(growth.last_bytes, 1)} so far. Something of each"
            " step is kept: often a loss with its graph (keep `loss.item()` or `loss.detach()`), or outputs in a list.",
        ),
    )


def _back_and_forth(evidence: RunEvidence) -> RunVerdict | None:
    """Copies to the host and to the device again, within a model, in most steps."""
    ways: dict[str, Counter[Crossing]] = {"host": Counter(), "device": Counter()}
    for note, count in evidence.times.crossings.items():
        if note.within and note.copied and note.to in ways:
            ways[note.to][note] += count
            if note.graph and evidence.training:  # the gradient comes back in backward
                ways["host" if note.to == "device" else "device"][note] += count
    each = {to: found.total() / max(evidence.times.steps, 1) for to, found in ways.items()}
    if min(each.values()) < 0.5:
        return None
    crossing = evidence.shares[COPIES] + evidence.shares[READ]
    if crossing < BACK_AND_FORTH_SHARE and evidence.shares[REST] + evidence.shares[INPUT] >= 0.8:
        return None  # it is there, and something else takes the time
    places: list[str] = []
    for found in ways.values():
        for place, _ in lines_of(found).most_common(1):
            if place not in places:
                places.append(place)
    share = percent_text(crossing)
    both = [note for found in ways.values() for note in found]
    why = _left_elsewhere(evidence.parameters)
    if all(note.what == WHOLE for note in both):
        why = "Whole models are moved: keep them on the device, if they fit there together."
    elif any(note.backward for note in ways["device"]):
        why = "What is saved for backward is kept in host memory: keep it on the device, or compute it again there."
    return RunVerdict(
        kind="back-and-forth",
        text=f"Moved back and forth: every step copies in both directions within the model, at {' and '.join(places)}.",
        evidence=(
            f"Copies to the host: {each['host']:.3g} a step, to the device: {each['device']:.3g}, gradients included;"
            f" what can be seen of them is {share} of a step. {why}",
        ),
        place=places[0],
    )


def _left_elsewhere(parameters: Sequence[ParameterPlace]) -> str:
    """Which part of the model is where the rest is not: on the CPU, or on the device that has the fewest parameters."""
    devices = Counter(each.device for each in parameters)
    if len(devices) < 2:
        return "A part of the model is on another device than the rest."
    left = "cpu" if "cpu" in devices else devices.most_common()[-1][0]
    modules = [each.name.rpartition(".")[0] or each.name for each in parameters if each.device == left]
    found = list(dict.fromkeys(modules))
    more = f" and {len(found) - NAMED_MODULES} more" if len(found) > NAMED_MODULES else ""
    others = " and ".join(device for device in devices if device != left)
    return f"On {left}: {', '.join(found[:NAMED_MODULES])}{more}; the rest of the model is on {others}."


def _largest(evidence: RunEvidence) -> RunVerdict:
    shares = evidence.shares
    loss = evidence.loss
    if loss > max(shares[FORWARD], shares[BACKWARD], shares[OPTIMIZER]):
        loss = 0.0  # it is more than a part of the forward
    compute = shares[FORWARD] + loss + shares[BACKWARD] + shares[OPTIMIZER]
    if not evidence.training:
        compute += shares[EVALUATION]
    groups = {"compute": compute, "input": shares[INPUT], "copies": shares[COPIES], "read": shares[READ]}
    reading = _rest_of_reading(evidence)
    groups |= {"rest": shares[REST] - loss, "ranks": shares[RANKS]}
    groups["read"] += reading
    groups["rest"] -= reading
    if evidence.training:
        groups["evaluation"] = shares[EVALUATION]
    name = max(groups, key=lambda key: groups[key])
    if name == "compute" and evidence.training and compute - loss < SURE_SHARE:  # the loss alone makes no model
        name = max((other for other in groups if other != "compute"), key=lambda key: groups[key])
    if name == "compute" and shares[EVALUATION] + evidence.sampling > compute:
        return _sampling(evidence)
    if name == "compute":
        large = [other for other in groups if groups[other] >= AVOIDABLE.get(other, 1.0)]
        name = max(large, key=lambda key: groups[key], default=name)
        if evidence.training and shares[REST] - reading > compute - loss:
            name = "rest"
    if groups[name] < min(SURE_SHARE, AVOIDABLE.get(name, SURE_SHARE)):
        return RunVerdict(kind="not-sure", text="Not sure: no phase takes much more of a step than the others.")
    if name == "compute":
        return _computing(evidence, compute, loss)
    if name == "rest":
        return _resting(evidence)
    if name == "ranks":
        text = f"Rank late: {evidence.percent(RANKS)} of a step is waiting for other ranks."
        advice = "Another rank is later, or the network is slow: the reports of all ranks together say which."
        return RunVerdict(kind="rank-late", text=text, evidence=(advice,))
    if name == "input":
        return _waiting(evidence)
    if name == "evaluation":
        return _evaluating(evidence)
    if name == "read":
        return _reading(evidence, reading)
    return _copying(evidence)


def _rest_of_reading(evidence: RunEvidence) -> float:
    """Share of a step that is the script's own, on lines that read values back: they work out what they read."""
    sampled = evidence.rests.total()
    if sampled < LEAST_SAMPLES:
        return 0.0
    lines = lines_of(_crossings_to(evidence, "host"))
    there = sum(count for (_, line), count in evidence.rests.items() if lines[line] >= max(evidence.times.steps, 1))
    return evidence.shares[REST] * there / sampled


def _crossings_to(evidence: RunEvidence, *directions: str) -> Counter[Crossing]:
    return Counter({note: count for note, count in evidence.times.crossings.items() if note.to in directions})


def _evaluating(evidence: RunEvidence) -> RunVerdict:
    share = f"Evaluation-bound: {evidence.percent(EVALUATION)} of a step is forward without gradients"
    left = _left_on_the_cpu(evidence)
    if left is not None:
        return RunVerdict(
            kind="evaluation-bound",
            text=f"{share}, and {left.name} at {left.place} is on the CPU.",
            evidence=("Another model is on a card: move this one there, too.",),
            place=left.place,
        )
    place, _ = _within(evidence, EVALUATION)
    at = f", most often at {place}" if place else ""
    return RunVerdict(
        kind="evaluation-bound",
        text=f"{share} (evaluation, or another model){at}.",
        evidence=("Evaluate less often, or on fewer samples.",),
        place=place or None,
    )


def _sampling(evidence: RunEvidence) -> RunVerdict:
    both = percent_text(evidence.shares[EVALUATION] + evidence.sampling)
    between = percent_text(evidence.sampling)
    return RunVerdict(
        kind="evaluation-bound",
        text=f"Evaluation-bound: {both} of a step is forward without gradients and the script's own lines between its"
        f" calls ({evidence.percent(EVALUATION)} and {between}).",
        evidence=("Sample or evaluate less often, or with fewer steps.",),
    )


def _left_on_the_cpu(evidence: RunEvidence) -> ObservedModel | None:
    """A model that is called in most steps and is on the CPU, while another one is on a card."""
    if not any(device != "cpu" for model in evidence.models for device in model.bytes_by_device):
        return None
    for model in evidence.models:
        if set(model.bytes_by_device) == {"cpu"} and 2 * model.calls >= evidence.steps:
            return model
    return None


def _waiting(evidence: RunEvidence) -> RunVerdict:
    advice = "The DataLoader is slower than the model: more workers, or less work for each sample."
    times = evidence.times
    first = times.begin_wait / float(times.counted[INPUT])
    often = times.begun / max(times.steps, 1)
    if first > MOST and (first > 2 * often or often > ALWAYS):
        percent = percent_text(first)
        advice = (
            f"{percent} of that is the first batch after each of {times.begun} new passes over the input, in"
            f" {times.steps} steps: a DataLoader's workers start again for each, unless one DataLoader is kept and has"
            " persistent_workers=True."
        )
    place, _ = _within(evidence, INPUT)
    at = f", most often at {place}, in the process that trains" if place else ""
    return RunVerdict(
        kind="input-bound",
        text=f"Input-bound: input wait is {evidence.percent(INPUT)} of a step{at}.",
        evidence=(advice,),
        place=place or None,
    )


def _reading(evidence: RunEvidence, own: float) -> RunVerdict:
    each, place = _most_crossings(evidence, _crossings_to(evidence, "host"))
    at = f", most often at {place}" if place else ""
    share = percent_text(evidence.shares[READ] + own)
    what = "waiting for values" if own < 0.005 else "working out and waiting for values"
    return RunVerdict(
        kind="read-back-bound",
        text=f"Read-back-bound: {share} of a step is {what} ({each} a step){at}.",
        evidence=("Each value is waited for: keep them on the device, and read them once for many steps.",),
        place=place or None,
    )


def _copying(evidence: RunEvidence) -> RunVerdict:
    each, place = _most_crossings(evidence, _crossings_to(evidence, "device", "between"))
    at = f", most often at {place}" if place else ""
    return RunVerdict(
        kind="copy-bound",
        text=f"Copy-bound: copies are {evidence.percent(COPIES)} of a step ({each} a step){at}.",
        evidence=("Pinned memory and non_blocking=True let them overlap; a smaller dtype makes them shorter.",),
        place=place or None,
    )


def _most_crossings(evidence: RunEvidence, notes: Counter[Crossing]) -> tuple[str, str]:
    """What crosses how often in a step, and the line where most do; empty where that is not known."""
    place, _ = (lines_of(notes).most_common(1) or [("", 0)])[0]
    whats: Counter[str] = Counter()
    for note, count in notes.items():
        whats[note.what] += count
    each = ", ".join(f"{what} {count / max(evidence.times.steps, 1):.3g} times" for what, count in whats.most_common(3))
    return each, place


def _computing(evidence: RunEvidence, compute: float, loss: float) -> RunVerdict:
    shares = list(evidence.shares)
    if not evidence.training:
        shares[REST] -= loss  # it is a part of `compute`, and no other phase is named there
    others = [
        f"{NAMES[phase]} is {percent_text(shares[phase])}"
        for phase in (INPUT, COPIES, READ, EVALUATION, REST, RANKS)
        if shares[phase] >= MENTIONED_SHARE and (evidence.training or phase != EVALUATION)
    ]
    beside = f"; {' and '.join(others)}" if others else ""
    own = compute * evidence.own
    if own >= SURE_SHARE:
        return _calling(evidence, own, beside)
    if shares[OPTIMIZER] >= OPTIMIZER_SHARE:
        place, _ = _within(evidence, OPTIMIZER)
        advice = (
            "It goes through every parameter at every step: sparse gradients for large tables, a fused optimizer, a"
            " larger batch."
        )
        if place:
            advice = "It is the script's own: what it works out at every step can be worked out at every tenth, say."
        at = f", most often at {place}" if place else ""
        return RunVerdict(
            kind="optimizer-bound",
            text=f"Optimizer-bound: the optimizer is {evidence.percent(OPTIMIZER)} of a step{at}{beside}.",
            evidence=(advice,),
            place=place or None,
        )
    if evidence.launches >= LAUNCH_RATIO and evidence.training:
        three = percent_text(shares[FORWARD] + shares[BACKWARD] + shares[OPTIMIZER])
        return RunVerdict(
            kind="launch-bound",
            text=f"Launch-bound: forward, backward and optimizer are {three} of a step, and the CPU takes"
            f" {evidence.launches:.1f} times as long to start their kernels as the card to run them{beside}.",
            evidence=(
                "The kernels are small, and a faster card would not help: larger batches, fewer and wider layers,"
                ' torch.compile(mode="reduce-overhead"), CUDA graphs.',
            ),
        )
    many_times = shares[BACKWARD] >= BACKWARD_RATIO * (shares[FORWARD] + evidence.loss)
    if many_times and shares[BACKWARD] >= BACKWARD_SHARE and evidence.launches < 1:  # else the host takes the time
        place, _ = _within(evidence, BACKWARD)
        lines = Counter({at.line: count for at, count in evidence.phases.items() if at.phase == BACKWARD})
        several = [line for line, count in lines.most_common(2) if count >= OFTEN * lines.total()]
        at = f", most often at {' and '.join(several)}" if place else ""
        return RunVerdict(
            kind="backward-bound",
            text=f"Backward-bound: backward is {evidence.percent(BACKWARD)} of a step, forward"
            f" {evidence.percent(FORWARD)}{at}{beside}.",
            evidence=("About twice the forward is usual: is backward called several times, or forward run again?",),
            place=place or None,
        )
    if not evidence.training:
        computes = "the model and its loss are" if loss else "the model is"
        text = f"Compute-bound: {computes} {percent_text(compute)} of a call{beside}."
        return RunVerdict(kind="compute-bound", text=text)
    place, share = _within(evidence, FORWARD, LOOP_SHARE, looped=True)
    loop = ""
    if share * shares[FORWARD] >= SURE_SHARE:
        loop = f", most of it in the script's own loop at {place}"
    text = (
        f"Compute-bound: forward {evidence.percent(FORWARD)}, backward {evidence.percent(BACKWARD)}, optimizer"
        f" {evidence.percent(OPTIMIZER)} of a step{loop}{beside}."
    )
    return RunVerdict(kind="compute-bound", text=text, place=place if loop else None)


def _calling(evidence: RunEvidence, own: float, beside: str) -> RunVerdict:
    place, _ = (evidence.within.most_common(1) or [("", 0)])[0]
    at = f", most often at {place}" if place else ""
    share = percent_text(own)
    return RunVerdict(
        kind="host-bound",
        text=f"Host-bound: for {share} of a step the card waits for the model's own Python{at}{beside}.",
        evidence=("Work it out once and keep it on the device (register_buffer), or with tensors there.",),
        place=place or None,
    )


def _resting(evidence: RunEvidence) -> RunVerdict:
    where, place = _where_it_rests(evidence)
    if where == COMPILED:
        text = f"Compute-bound: {evidence.percent(REST)} of a step is {COMPILED}."
        hidden = "Which part of that is forward cannot be seen: the models are compiled into those functions."
        return RunVerdict(kind="compute-bound", text=text, evidence=(hidden,), place=place)
    if where == WAITING:
        return RunVerdict(
            kind="input-bound",
            text=f"Input-bound: {evidence.percent(REST)} of a step is {WAITING}, most often at {place}.",
            evidence=(
                "What makes the batches is slower than the model: more threads or processes, or less work for each"
                " batch. Python code in threads runs one thread at a time.",
            ),
            place=place,
        )
    advice = [_ADVICE.get(where, "Neither torch's input nor the model takes the time.")]
    each = evidence.host_reads / max(evidence.steps, 1)
    if each >= MANY_READS:
        one_by_one = f"{each:,.0f} values a step are read one by one from tensors on the CPU"
        advice.insert(0, f"{one_by_one} (.item(), float()); .tolist() reads all at once.")
    at = f", most often at {place}" if place else ""
    if where == AFTER and not evidence.training:
        where = "after the model"  # there is no optimizer
    return RunVerdict(
        kind="rest-bound",
        text=f"Rest-bound: {evidence.percent(REST)} of a step is the script's own lines {where}{at}.",
        evidence=tuple(advice),
        place=place,
    )


_ADVICE = {
    BEFORE: "Batches are made in the process that trains: a DataLoader with workers can make them beside it.",
    AFTER: "What is done after each step (logs, checkpoints, figures) can be done less often.",
    BETWEEN: "What is between forward and the optimizer (the loss, figures, NumPy) takes longer than the model.",
}


BETWEEN_CALLS = "between two calls of the model"


def _where_it_rests(evidence: RunEvidence) -> tuple[str, str | None]:
    """Where in the loop, and at which line if that is known."""
    sampled: Counter[str | None] = Counter()
    seen = _plausible(evidence)
    for (where, _), count in seen.items():
        sampled[where] += count
    before, after = divmod(int(evidence.times.rests.argmax()), len(NAMES))
    if sampled.total() >= LEAST_SAMPLES:
        where, _ = sampled.most_common(1)[0]
        lines = Counter({line: count for (each, line), count in seen.items() if each == where})
        place, _ = lines.most_common(1)[0]
        return where or _by_phases(before, after), place
    return _by_phases(before, after), None


def _plausible(evidence: RunEvidence) -> Counter[tuple[str | None, str]]:
    """Samples of where the marks say that most of the time is: those are exact, and a few samples are not."""
    rests = evidence.times.rests
    between = float(rests[np.ix_((FORWARD, BACKWARD), (BACKWARD, OPTIMIZER))].sum() + rests[FORWARD, FORWARD])
    around = float(rests[OPTIMIZER].sum() + rests[INPUT].sum() + rests[:, INPUT].sum())
    left_out: tuple[str, ...] = ()
    if between > CLEARLY * around:
        left_out = BEFORE, AFTER
    elif around > CLEARLY * between:
        left_out = (BETWEEN,)
    return Counter({(where, line): count for (where, line), count in evidence.rests.items() if where not in left_out})


def _by_phases(before: int, after: int) -> str:
    """As the phases before and after it say."""
    if before == OPTIMIZER:
        if after in (INPUT, EVALUATION):
            return AFTER
        return f"between optimizer and {NAMES[after]}"
    if after in (FORWARD, EVALUATION) and before in (INPUT, COPIES):
        return BEFORE
    if after == before:
        return BETWEEN_CALLS
    if before == FORWARD and after in (BACKWARD, OPTIMIZER):
        return BETWEEN
    return f"after {NAMES[before]}"
