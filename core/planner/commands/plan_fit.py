"""Carries out `PlanFit`: has a model like that of the workspace planned for in a separate process. Runs on the jobs
thread."""

from __future__ import annotations

import shlex

from msgspec.structs import replace

from devexplorer.core.base import (
    OPTIMIZERS,
    BadInput,
    ProgressMonitor,
    bytes_text,
    count_text,
    number_text,
    object_name,
    range_text,
    seconds_text,
)
from devexplorer.core.commands.handlers import blueprint
from devexplorer.core.planner.messages import PARTS
from devexplorer.core.planner.records import (
    Fit,
    FitPlanned,
    FitReport,
    FitSpec,
    PlanFit,
    ServingFit,
    ServingSpec,
    planned_tensors,
)
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
    spec = command.spec if not command.target else _spec_of(workspace, command)
    report = planned(spec, progress)
    if command.target and workspace.extras(object_name(command.target)).outdated:
        report = replace(report, assumptions=(CODE_CHANGED, *report.assumptions))
    return CommandResult(
        _answer(command.target or spec.source, report, command.target),
        events=(FitPlanned(target=command.target, report=report),),
    )


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


def _offers(target: str, report: FitReport) -> tuple[Offer, ...]:
    """To go on with the cards that there was no time for."""
    if not report.late:
        return ()
    rest = PlanFit(spec=replace(report.spec, gpus=report.late, tensors=()), target=target)
    return (Offer(f"Check the other {count_text(len(report.late), 'card')}", rest),)


def _answer(name: str, report: FitReport, target: str = "") -> Answer:
    return Answer(
        title=_title(name, report),
        words=_words(report),
        facts=tuple(_facts(report)),
        code=_code(report),
        offers=_offers(target, report),
        subject=name if name != report.spec.source else None,
    )


def _title(name: str, report: FitReport) -> str:
    name = name.partition("?")[0]
    if len(report.fits) > 1:
        return f"{name} fits {sum(fit.fits for fit in report.fits) or 'none'} of {len(report.fits)} cards"
    (fit,) = report.fits
    needs = f"{bytes_text(fit.bytes.total)} of {bytes_text(fit.capacity_bytes)}"
    return f"{name} fits {fit.gpu}: {needs}" if fit.fits else f"{name} does not fit {fit.gpu}"


def _words(report: FitReport) -> str:
    spec = report.spec
    what = f"training with {OPTIMIZERS[spec.optimizer].title}" if spec.train else "inference"
    if spec.serving is not None:
        what = f"generating {spec.serving.generate:,} tokens"
    said = [
        f"Checked for {what} in batches of {spec.batch}, on {report.inputs}, by running it without values; all seconds"
        " are simulated."
    ]
    said += [f"{fit.gpu}: {_outcome(fit)}." for fit in report.fits] if len(report.fits) <= HELPS_TOLD else []
    if report.late:
        said.append(f"No time was left for {', '.join(report.late)}.")
    helps = report.helps[:HELPS_TOLD]
    if helps:
        said.append(f"What would help on {helps[0].gpu}:")
        said += [help.words for help in helps]
    return " ".join(said)


def _outcome(fit: Fit) -> str:
    if not fit.fits:
        return fit.reason
    if fit.serving is not None:
        return _served(fit.serving)
    step = range_text(seconds_text(fit.step_seconds_low), seconds_text(fit.step_seconds_high))
    rate = range_text(number_text(fit.samples_per_s_low), number_text(fit.samples_per_s_high))
    text = f"a step takes {step} (simulated), {rate} samples/s"
    if fit.largest_batch is not None:
        text += f", and the largest batch is {'at least ' if fit.at_least else ''}{fit.largest_batch:,}"
    return text


def _served(serving: ServingFit) -> str:
    """How fast text is generated."""
    wait = range_text(seconds_text(serving.prefill_seconds_low), seconds_text(serving.prefill_seconds_high))
    text = f"the first token is there after {wait} (simulated)"
    if serving.decode_tokens_per_s is not None:
        rate = range_text(number_text(serving.decode_tokens_per_s_low), number_text(serving.decode_tokens_per_s_high))
        text += f", then {rate} tokens/s, about {number_text(serving.decode_tokens_per_s_per_user)} for each user"
    if serving.largest_context:
        text += f", and the longest context is {serving.largest_context:,} tokens"
    return text


def _facts(report: FitReport) -> list[Fact]:
    first = report.fits[0]
    facts = [Fact("parameters", count_text(report.parameters, "element")), Fact("inputs", report.inputs)]
    if len(report.fits) == 1:
        facts += [
            Fact(PARTS[field], bytes_text(getattr(first.bytes, field)))
            for field in PARTS
            if getattr(first.bytes, field)
        ]
    else:
        facts += [
            Fact(fit.gpu, f"{'fits' if fit.fits else 'does not fit'}, {bytes_text(fit.bytes.total)}")
            for fit in report.fits
        ]
    return facts


def _code(report: FitReport) -> str:
    """The command line that does the same, and the same in Python: of the model as its source makes it."""
    spec = replace(report.spec, tensors=())
    changed = [
        f"# the model as its source makes it; changed in the workspace: {count_text(report.changed_tensors, 'tensor')}"
    ]
    given = ", ".join(
        f"{field}={getattr(spec, field)!r}" for field in spec.__struct_fields__ if getattr(spec, field) != _PLAIN[field]
    )
    return "\n".join(
        [
            f"from devexplorer import FitSpec{'' if spec.serving is None else ', ServingSpec'}, planned",
            "",
            f"# {command_line(spec)}",
            *(changed if report.changed_tensors else []),
            f"for _fit in planned(FitSpec({given})).fits:",
            '    print(_fit.gpu, "fits" if _fit.fits else _fit.reason, _fit.bytes)',
        ]
    )


_PLAIN = {field: getattr(FitSpec(source=""), field) for field in FitSpec.__struct_fields__}


def command_line(spec: FitSpec) -> str:
    """`devexplorer fit resnet18 --gpu 'Tesla T4' --train --optimizer sgd`; what is importable is the folder that it
    runs in."""
    words = ["devexplorer", "fit", spec.source]
    for gpu in spec.gpus:
        words += ["--gpu", gpu]
    for option, value, plain in (
        ("--batch", spec.batch, 1),
        ("--dtype", spec.dtype, None),
        ("--autocast", spec.autocast, None),
        ("--input", spec.inputs, ""),
    ):
        words += [option, str(value)] if value != plain else []
    words += ["--train", "--optimizer", spec.optimizer] if spec.train else []
    words += ["--checkpointing"] if spec.checkpointing else []
    words += ["--tf32"] if spec.tf32 else []
    words += ["--channels-last"] if spec.channels_last else []
    words += ["--input-copy"] if spec.input_copy else []
    words += _serving_words(spec.serving) if spec.serving is not None else []
    words += ["--curve"] if spec.curve else []
    home = f"cd {shlex.quote(spec.folder)} && " if spec.folder else ""
    return home + shlex.join(words)


def _serving_words(serving: ServingSpec) -> list[str]:
    """The options of generating text that say something."""
    words = ["--generate", str(serving.generate), "--prompt", str(serving.prompt)]
    for option, value, plain in (
        ("--kv-dtype", serving.kv_dtype, None),
        ("--kv-block", serving.kv_block, None),
        ("--prefill-chunk", serving.prefill_chunk, None),
        ("--tensor-parallel", serving.tensor_parallel, 1),
        ("--weights", serving.weights, ""),
    ):
        words += [option, str(value)] if value != plain else []
    return words
