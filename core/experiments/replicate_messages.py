"""Says in words how a batch was split over the replicas of a model, with the Python that does it. Pure functions, jobs
thread."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.base.formats import bytes_text, count_text, list_text, seconds_text, shape_text
from devexplorer.core.base.python_names import expression, quoted, variable
from devexplorer.core.experiments.replica_run import Part, Ran, Timed
from devexplorer.core.models.run import Operand
from devexplorer.core.records.messages import Answer, Fact
from devexplorer.core.workspace import run_code

ROUNDING = 1e-4
"""Of the largest value: float32 products of another batch size may sum in another order, and are no further apart than
this."""


class Replica(NamedTuple):
    """A copy on one device."""

    name: str
    device: str
    bytes: int
    part: Part


class Replicas(NamedTuple):
    """What `Replicate` did."""

    target: str
    replicas: tuple[Replica, ...]
    rows: int
    inputs: tuple[Operand, ...]
    given: tuple[str, ...]
    """Names of the inputs; empty: a sample."""
    source: str | None
    """What the model was made from."""
    ran: Ran
    statistics: bool
    """It has batch norm."""
    training: bool


def replicated(done: Replicas) -> Answer:
    """The answer."""
    count, ran = len(done.replicas), done.ran
    idle = [replica for replica in done.replicas if not replica.part.rows]
    split = " + ".join(str(replica.part.rows) for replica in done.replicas)
    words = (
        f"Every device has a whole copy of {done.target}. The batch of {count_text(done.rows, 'row')} is split along"
        f" dimension 0 as torch.chunk does: {split}. Each copy runs on its rows, and the outputs are gathered on"
        f" {done.replicas[0].device}: {_equal(done)}."
    )
    if idle:
        gives = "gives" if done.rows == 1 else "give"
        split = f"{count_text(done.rows, 'row')} {gives} {count_text(count - len(idle), 'part')} for {count} devices"
        words += (
            f" {list_text([replica.device for replica in idle])} had nothing to do: {split}. A larger batch would keep"
            " all of them busy."
        )
    words += f" {_times(done)}"
    words += (
        " For training, each copy's backward gives the gradients of its own rows, and they have to be summed up before"
        " the step: DataParallel makes such copies anew in every forward, from one process, and adds the gradients up"
        " on the first device. PyTorch recommends DistributedDataParallel: one process per device, copies that stay,"
        " gradients averaged between them while backward still runs."
    )
    if done.statistics:
        words += (
            " It ran in evaluation mode: while training, batch norm would take mean and variance of each device's rows"
            " alone, and SyncBatchNorm is the way around that."
        )
    facts = [Fact(replica.device, _line(replica)) for replica in done.replicas]
    facts += [
        Fact(item.label, f"{shape_text(item.shape)} {item.dtype} on {item.device}")
        for item in (*done.inputs, *ran.outputs)
    ]
    facts.append(Fact("largest difference", f"{ran.difference:.3g}"))
    facts.append(Fact("gathering", _text(ran.gathering)))
    facts.append(Fact(f"{done.replicas[0].device} alone", _text(ran.alone)))
    if ran.together is not None:
        facts.append(Fact("together", _text(ran.together)))
    title = f"{done.target} is on {count} devices: {list_text([replica.name for replica in done.replicas])}"
    return Answer(title=title, words=words, facts=tuple(facts), code=_code(done), subject=done.replicas[0].name)


def _equal(done: Replicas) -> str:
    ran = done.ran
    if ran.unlike:
        return (
            f"{count_text(ran.unlike, 'output')} did not have the batch first, so that they cannot be compared with"
            " those of one device"
        )
    if ran.difference == 0:
        return "the result is to the bit what one device gives for the whole batch"
    said = f"the result differs from what one device gives for the whole batch by {ran.difference:.3g} at most"
    return (
        f"{said}, which is rounding"
        if ran.difference <= ROUNDING * ran.largest
        else f"{said}, more than rounding: its rows depend on each other"
    )


def _times(done: Replicas) -> str:
    ran, first = done.ran, done.replicas[0]
    if ran.together is None:
        return (
            "Some of these devices are real and some are simulated: their times have no clock in common, so there is"
            " none for all together."
        )
    words = (
        f"{first.device} alone takes {_text(ran.alone)} for the whole batch, all together {_text(ran.together)}, copies"
        " of rows and outputs included."
    )
    if ran.together.seconds >= ran.alone.seconds:
        words += " For so little work the copies cost more than they save."
    return words


def _line(replica: Replica) -> str:
    part, held = replica.part, f"{bytes_text(replica.bytes)} for {replica.name}"
    if not part.rows:
        return f"{held}, nothing to do"
    arrival = f"{_text(part.copying)} to get there" if part.copying.seconds else "there already"
    return f"{held}, {count_text(part.rows, 'row')}: {arrival}, {_text(part.forward)} forward"


def _text(timed: Timed) -> str:
    return f"{seconds_text(timed.seconds)}{' (simulated)' if timed.simulated else ''}"


def _code(done: Replicas) -> str:
    """Its own names begin with an underscore: no object has such a one."""
    names = [variable(replica.name) for replica in done.replicas]
    devices = ", ".join(quoted(replica.device) for replica in done.replicas)
    made = run_code.sample(expression(done.target), done.inputs, done.source) if not done.given else [""]
    given = f"({', '.join(map(variable, done.given))},)" if done.given else run_code.INPUTS
    lines = [
        f"{name} = copy.deepcopy({expression(done.target)}).to({quoted(replica.device)}).eval()"
        for name, replica in zip(names, done.replicas, strict=True)
    ]
    lines += [
        f"_rows = zip(*(one.chunk({len(names)}) for one in {given}))",
        "with torch.no_grad():",
        "    _outputs = [",
        "        model(*(one.to(device) for one in rows))",
        f"        for model, device, rows in zip([{', '.join(names)}], [{devices}], _rows)",
        "    ]",
    ]
    if len(done.ran.outputs) == 1:
        lines.append(f"print(torch.cat([output.to({quoted(done.replicas[0].device)}) for output in _outputs]).shape)")
    if done.training:
        lines += [f"{name}.train()" for name in names]
    return "\n".join(["import copy", "", "import torch", *made, *lines])
