"""For users' tests: `assert_placement_clean(model)` fails where a model would fail on another device, or be slow.
Any thread."""

from __future__ import annotations

import os
from collections.abc import Collection

from msgspec.structs import replace
from torch import Tensor, nn

from devexplorer.core.base import BadInput, Unavailable, suggestion
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.doctor.ask import LIMIT_SECONDS, diagnosed
from devexplorer.core.doctor.examine import Doctor
from devexplorer.core.doctor.findings.collector import passed_over
from devexplorer.core.doctor.findings.rules import RULES, verdict
from devexplorer.core.doctor.subject import DEFAULT, CopyBuilder, picked
from devexplorer.core.records import Diagnosis, DoctorRequest, Finding, Unchecked
from devexplorer.core.virtual.backend import add_virtual_gpus, beside_cards, installed


def assert_placement_clean(
    model: nn.Module | str,
    device: str = "vgpu:0",
    *inputs: Tensor | str,
    train: bool = False,
    allow_unchecked: bool = False,
    ignore: Collection[str] = (),
    folder: str = "",
    virtual: str = "",
    dtype: str | None = None,
    seed: int = 0,
    seconds: float = LIMIT_SECONDS,
) -> Diagnosis:
    """Raise `AssertionError` with everything that the placement doctor finds; return what it says when that is nothing.

    `model` is a model, of which a copy is examined in this process (the model itself is left as it is, and so is
    torch), or a source as the command line takes it (`"net.py:Net"`, `"transformers:gpt2"`, `"resnet18"`), which is
    examined in its own process within `seconds`; `folder` is importable there, and `seed` is that of its initial
    values. `device` is where the model is moved: a GPU of PyTorch's, or a virtual one, which needs no card. `virtual`
    says which virtual GPUs are made (`"2x Tesla T4"`); for a model, where there are some in this process already, it
    must name those. `inputs` are what forward gets: tensors (for a model), or one text with their shapes as `--input`
    takes them (`"2x16:int64,2x8"`); without them they are guessed. `dtype` is the one that the model is moved to, None:
    its own. A model on a virtual GPU needs a process that uses no CUDA card (`Unavailable` says how to start one); a
    source does not.

    With `train` it runs the backward and a step of an optimizer as well. Errors and warnings fail, notes do not; rules
    whose keys are in `ignore` (`"hidden-sync"`) are passed over. What fails because of something that is passed over
    still fails, as a finding of another rule (`"mixed-devices"`). What could not be checked fails as well, unless
    `allow_unchecked`. Raises `BadInput` for a device, a virtual GPU or a rule that does not exist.
    """
    for key in ignore:
        if key not in RULES:
            raise BadInput(f"there is no rule '{key}'; {suggestion(key, RULES)}")
    title = model if isinstance(model, str) else type(model).__name__
    shapes, tensors = _given(title, inputs, isinstance(model, str))
    request = DoctorRequest(
        source=title,
        folder=folder,
        device=device,
        virtual=virtual,
        train=train,
        inputs=shapes,
        dtype=dtype,
        seed=seed,
        fixes=False,
    )
    doctor: Doctor | None = None
    if not isinstance(model, str):
        if device.strip().lower().startswith("vgpu"):
            _demand_virtual(virtual)
        doctor = Doctor(CopyBuilder(model), picked(device), request, tensors or None)
    try:
        diagnosis = diagnosed(request, seconds=seconds) if doctor is None else doctor.examine()
    except BadInput as error:
        raise AssertionError(f"the placement of {title} could not be checked: {error}") from None
    problems = passed_over(diagnosis.problems, ignore)
    if problems or (diagnosis.unchecked and not allow_unchecked):
        raise AssertionError(report(diagnosis, problems, with_unchecked=not allow_unchecked))
    return diagnosis


def _demand_virtual(spec: str) -> None:
    """Let there be these virtual GPUs, or some. Raises `BadInput` where the process has others already: they cannot be
    exchanged; `Unavailable` where it can use CUDA cards."""
    machine = installed()
    there = [] if machine is None else [gpu.profile.name for gpu in machine.gpus]
    if not there:
        if (why := beside_cards()) is not None:
            raise Unavailable(f"{why}, or name a card (device='cuda:0'), or the model as a source ('net.py:Net')")
        add_virtual_gpus(spec or DEFAULT)
        return
    wanted = [profile.name for profile in parse_virtual(spec)] if spec else []
    if there[: len(wanted)] != wanted:
        raise BadInput(
            f"this process has virtual GPUs already ({', '.join(there)}), so '{spec}' cannot be made; omit `virtual`"
        )


def report(diagnosis: Diagnosis, problems: Collection[Finding], *, with_unchecked: bool = True) -> str:
    """What is wrong, in lines."""
    simulated = " (simulated)" if diagnosis.simulated else ""
    unchecked = diagnosis.unchecked if with_unchecked else ()
    summary = verdict(replace(diagnosis, problems=tuple(problems), notes=(), unchecked=unchecked))
    lines = [f"placement of {diagnosis.target} on {diagnosis.device}{simulated}: {summary}"]
    for item in problems:
        path = f" ({item.path})" if item.path else ""
        lines += [f"  {_where(item)}{item.rule}{path}", f"    {item.message}", f"    {item.fix}"]
    for missing in unchecked:
        lines += [f"  {_where(missing)}not checked: {missing.what}", f"    {missing.reason}"]
    return "\n".join(lines)


def _where(item: Finding | Unchecked) -> str:
    return f"{os.path.relpath(item.file)}:{item.line}: " if item.line else ""


def _given(title: str, inputs: tuple[Tensor | str, ...], is_source: bool) -> tuple[str, list[Tensor]]:
    """The shapes or the tensors."""
    texts = [item for item in inputs if isinstance(item, str)]
    tensors = [item.detach().to("cpu", copy=True) for item in inputs if isinstance(item, Tensor)]
    if tensors and (texts or is_source):
        why = (
            "a source runs in a separate process and takes their shapes"
            if is_source
            else "give tensors or one text with shapes"
        )
        raise BadInput(f"'{title}' cannot be given these inputs: {why}, as in '2x16:int64,2x8'")
    return ",".join(texts), tensors
