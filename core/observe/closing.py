"""What is said of a run when it is over: a few lines of text. Any thread, no torch."""

from __future__ import annotations

from devexplorer.core.base.formats import bytes_by_device_text, bytes_text, count_text, percent_text, seconds_text
from devexplorer.core.observe.records import ObservedModel, RunReport

MOST_LINES = 12
MOST_MODELS = 3
LEAST_SHARE = 0.01


def report_lines(report: RunReport) -> list[str]:
    """At most twelve lines."""
    lines = [_head(report)]
    for model in report.models[:MOST_MODELS]:
        lines.append("  " + _model(model))
    if len(report.models) > MOST_MODELS:
        lines.append(f"  and {count_text(len(report.models) - MOST_MODELS, 'more model')}")
    if report.phases:
        lines.append("  " + _phases(report))
    memory = [_memory(use.device, use.peak_allocated_bytes, use.peak_reserved_bytes) for use in report.memory]
    if memory:
        lines.append(f"  Peak memory: {'; '.join(memory[:8])}")
    lines.append(f"  {report.verdict.text}")
    if report.verdict.evidence:
        told = list(report.verdict.evidence)
        if report.clock == "simulated" and (len(told) > 1 or report.verdict.kind == "not-sure"):
            told.pop()  # that it is, which the first line says
        lines += [f"  {words}" for words in told]
    if report.problems:
        lines.append(f"  Not observed completely: {report.problems[0]}")
    return lines[:MOST_LINES]


def _head(report: RunReport) -> str:
    name = report.script.replace("\\", "/").rpartition("/")[2] or "The script"
    what = count_text(report.steps, "step" if report.training else "call")
    each = ""
    if report.step_median_seconds is not None:
        each = f", {seconds_text(report.step_median_seconds, simulated=report.clock == 'simulated')} each"
    rank = "" if report.rank is None else f" (rank {report.rank} of {report.ranks})"
    stops = ", ".join(f"{seconds_text(seconds)} {how}" for how, seconds in report.stopped.items())
    stopped = f" (stopped for {stops})" if stops else ""
    return f"{name}{rank}: {what} in {seconds_text(report.seconds)}{stopped}{each}"


def _model(model: ObservedModel) -> str:
    parts = [
        f"{model.name} ({model.place}): {count_text(model.calls, 'call')}, {count_text(model.parameters, 'parameter')}"
    ]
    for name, sizes in (
        ("", model.bytes_by_device),
        ("gradients ", model.gradient_bytes),
        ("optimizer state ", model.optimizer_bytes),
    ):
        if sizes:
            parts.append(name + bytes_by_device_text(sizes))
    return "; ".join(parts)


def _phases(report: RunReport) -> str:
    parts = [
        f"{phase.name} {percent_text(phase.share)}"
        for phase in sorted(report.phases, key=lambda phase: -phase.share)
        if phase.share >= LEAST_SHARE
    ]
    return ", ".join(parts)


def _memory(device: str, allocated: int | None, reserved: int | None) -> str:
    if device == "cpu":
        return f"process {bytes_text(allocated)}"
    if reserved is None:
        return f"{device} {bytes_text(allocated)}"
    return f"{device} {bytes_text(allocated)} allocated, {bytes_text(reserved)} reserved"
