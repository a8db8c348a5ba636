"""Carries out `PlanFit`: has a model like that of the workspace planned for in a separate process. Runs on the jobs
thread."""

from __future__ import annotations

import shlex

from msgspec.structs import replace

from devexplorer.core.base import BadInput, ProgressMonitor, bytes_text, count_text, object_name
from devexplorer.core.commands.handlers import blueprint
from devexplorer.core.planner.messages import PARTS, outcome, workload
from devexplorer.core.planner.records import FitPlanned, FitReport, FitSpec, PlanFit, ServingSpec, planned_tensors
from devexplorer.core.planner.worker.ask import planned
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.workspace import CommandResult, Workspace

CODE_CHANGED = (
    "Files of the model's code have changed since it was created: its forward was planned for as they are now. Rebuild"
    " it to have the same model here."
)
HELPS_TOLD = 3
"""What would help most, named in the answer; the planner's panel shows all of it."""


def plan_fit(workspace: Workspace, command: PlanFit, progress: ProgressMonitor) -> CommandResult:
    """What the planner says. Changes nothing; raises `BadInput` where the model's source is unknown, `Cancelled`."""
    spec = command.spec
    if command.target:
        spec = _spec_of(workspace, command)
    report = planned(spec, progress)
    if command.target and workspace.extras(object_name(command.target)).outdated:
        report = replace(report, assumptions=(CODE_CHANGED, *report.assumptions))
    return CommandResult(answer_of(report, command.target), events=(FitPlanned(target=command.target, report=report),))


def _spec_of(workspace: Workspace, command: PlanFit) -> FitSpec:
    """The request with what the model of the workspace was made from."""
    target = workspace.target(object_name(command.target))
    made = blueprint(target, workspace.extras(target.name))
    if made is None:
        raise BadInput(
            f"'{target.name}' was not created here, so the planner cannot rebuild it; open it from its file or module"
        )
    spec = command.spec
    inputs, dtype = spec.inputs or made.inputs, spec.dtype or made.dtype
    tensors = planned_tensors(workspace.snapshot(target.name))
    return replace(spec, source=made.source, folder=made.folder, inputs=inputs, dtype=dtype, tensors=tensors)


def answer_of(report: FitReport, target: str) -> Answer:
    """About a model of the workspace, or about a source where there is no target."""
    name = (target or report.spec.source).partition("?")[0]
    fits = report.fits
    facts = [Fact("parameters", count_text(report.parameters, "element")), Fact("inputs", report.inputs)]
    if len(fits) == 1:
        [fit] = fits
        title = f"{name} does not fit {fit.gpu}"
        if fit.fits:
            title = f"{name} fits {fit.gpu}: {bytes_text(fit.bytes.total)} of {bytes_text(fit.capacity_bytes)}"
        for field, part in PARTS.items():
            nbytes = getattr(fit.bytes, field)
            if nbytes:
                facts.append(Fact(part, bytes_text(nbytes)))
    else:
        title = f"{name} fits {sum(fit.fits for fit in fits) or 'none'} of {len(fits)} cards"
        for fit in fits:
            told = "fits" if fit.fits else "does not fit"
            facts.append(Fact(fit.gpu, f"{told}, {bytes_text(fit.bytes.total)}"))
    offers = []
    if report.late:
        rest = PlanFit(spec=replace(report.spec, gpus=report.late, tensors=()), target=target)
        offers.append(Offer(f"Check the other {count_text(len(report.late), 'card')}", rest))
    return Answer(
        title=title,
        words=_words(report),
        facts=tuple(facts),
        code=_code(report),
        offers=tuple(offers),
        subject=target or None,
    )


def _words(report: FitReport) -> str:
    said = [f"Checked for {workload(report)}, by a run without values; all seconds are simulated."]
    if len(report.fits) <= HELPS_TOLD:
        for fit in report.fits:
            told = "; ".join(outcome(fit)) if fit.fits else fit.reason
            said.append(f"{fit.gpu}: {told}.")
    if report.late:
        said.append(f"No time was left for {', '.join(report.late)}.")
    helps = report.helps[:HELPS_TOLD]
    if helps:
        said.append(f"What would help on {helps[0].gpu}:")
        said += [help.words for help in helps]
    return " ".join(said)


_PLAIN = FitSpec(source="")


def _code(report: FitReport) -> str:
    """The command line that does the same, and the same in Python: of the model as its source makes it."""
    spec = replace(report.spec, tensors=())
    given = []
    for field in spec.__struct_fields__:
        value = getattr(spec, field)
        if value != getattr(_PLAIN, field):
            given.append(f"{field}={value!r}")
    changed = ""
    if report.changed_tensors:
        tensors = count_text(report.changed_tensors, "tensor")
        changed = f"# the model as its source makes it; changed in the workspace: {tensors}\n"
    return (
        f"from devexplorer import FitSpec{'' if spec.serving is None else ', ServingSpec'}, planned\n\n"
        f"# {command_line(spec)}\n{changed}"
        f"for _fit in planned(FitSpec({', '.join(given)})).fits:\n"
        '    print(_fit.gpu, "fits" if _fit.fits else _fit.reason, _fit.bytes)'
    )


STEP_OPTIONS = (
    "batch", "dtype", "autocast", "train", "optimizer", "checkpointing", "tf32", "channels_last", "input_copy", "curve",
)  # fmt: skip
SERVING_OPTIONS = ("generate", "prompt", "kv_dtype", "kv_block", "prefill_chunk", "tensor_parallel", "weights")
"""Fields that are options of the command line by the same name."""


def command_line(spec: FitSpec) -> str:
    """`devexplorer fit resnet18 --gpu 'Tesla T4' --train --optimizer sgd`; what is importable is the folder that it
    runs in."""
    words = ["devexplorer", "fit", spec.source]
    for gpu in spec.gpus:
        words += ["--gpu", gpu]
    if spec.inputs:
        words += ["--input", spec.inputs]
    words += _options(spec, _PLAIN, STEP_OPTIONS)
    if spec.serving is not None:
        words += _options(spec.serving, ServingSpec(generate=0), SERVING_OPTIONS)
    home = f"cd {shlex.quote(spec.folder)} && " if spec.folder else ""
    return home + shlex.join(words)


def _options(given: FitSpec | ServingSpec, plain: FitSpec | ServingSpec, names: tuple[str, ...]) -> list[str]:
    """Those that are not as they would be without saying."""
    words = []
    for name in names:
        value = getattr(given, name)
        if value != getattr(plain, name):
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                words.append(str(value))
    return words
