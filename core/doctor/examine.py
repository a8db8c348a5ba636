"""An examination from the first line to the last: make the model, look at it, move it, look again, run it and watch.
The main thread of the doctor's process (`core.doctor.ask`), or of a test.

Everything that the model's code does to the process is kept while it is examined, as its user's program would have it,
and taken back in the end.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, Report, no_report
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector, diagnosis
from devexplorer.core.doctor.findings.rules import DEVICES_MEET
from devexplorer.core.doctor.hard_coded import HardCoded
from devexplorer.core.doctor.static.checks import StaticChecks
from devexplorer.core.doctor.static.gradients import report_summed_losses
from devexplorer.core.doctor.subject import Devices, chosen, inputs_for, moved, text_of_tensors
from devexplorer.core.doctor.tracing.device_branches import Branches
from devexplorer.core.doctor.tracing.gradients import Gradients, growing
from devexplorer.core.doctor.tracing.op_tracer import OpTracer, forward_line
from devexplorer.core.doctor.trials import BY_DEVICE, ComparedValues, Outcome, Trials, alike, values_of, with_fixes
from devexplorer.core.doctor.working import (
    BACKWARD,
    FORWARD,
    MODES,
    STEP,
    CpuTwin,
    Failure,
    ForwardWork,
    arguments_hint,
    deep,
    eagerly,
    failure_of,
    generators_kept,
    note_quantised,
    out_of_memory,
    reads_mode,
    seed_all,
    single,
    unwrapped,
)
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models import (
    Builder,
    UnknownInputs,
    builder_of,
    default_device,
    dispatched,
    kept,
    model_dtype,
    named_modules,
    parse_inputs,
    split_by_hand,
)
from devexplorer.core.models.class_source import class_source
from devexplorer.core.models.samples.registry import specs_text
from devexplorer.core.models.walk import cut_computed
from devexplorer.core.records import Diagnosis, DoctorRequest
from devexplorer.core.virtual.cuda.emulation import CudaEmulation
from devexplorer.core.virtual.cuda.on_cpu import OnCpu

MIXED = "mixed-dtypes"
AT_EVERY_CALL = ("device-hop", "hidden-sync")
"""Rules about what a call costs, if every call does it."""


def examine(request: DoctorRequest, progress: Report = no_report) -> Diagnosis:
    """Examine what a request names, in this process. Raises `BadInput` where nothing could be examined."""
    *_, found = examined(request, progress)
    return found


def examined(request: DoctorRequest, progress: Report = no_report) -> Iterator[Diagnosis]:
    """The same, in two steps: without fixes, and with those that were tried."""
    builder = builder_of(request.source, request.folder)
    if request.inputs.strip():
        parse_inputs(request.inputs)
    return Doctor(builder, chosen(request), request, progress=progress).diagnoses()


class _Placed(NamedTuple):
    """What is run."""

    model: nn.Module
    """Where it was moved."""
    given: list[Tensor]
    """What its forward gets, on the CPU."""
    origins: Origins


class Doctor:
    """One examination of one subject on one device."""

    def __init__(
        self,
        builder: Builder,
        devices: Devices,
        request: DoctorRequest,
        tensors: list[Tensor] | None = None,
        progress: Report = no_report,
        trial: bool = False,
    ) -> None:
        """`tensors` are what forward gets, on the CPU; None: what the request says. `trial`: it is repeated to try a
        fix, and compared with the CPU. Raises `BadInput` for a dtype."""
        self._builder, self._info, self._request, self._progress = builder, devices.chosen, request, progress
        self._devices, self._trial, self._training = devices, trial, request.training and not request.train
        self._dtype = None if request.dtype is None else model_dtype(request.dtype)
        self._tensors = tensors
        self._text = request.inputs if tensors is None else text_of_tensors(tensors)
        self._named: list[bool] = []
        """Of each input whether its dtype was said; only others follow the model's."""
        self._collector = FindingCollector()
        self._cuda = CudaEmulation(devices.cards, HardCoded(self._collector, devices.cards), virtual=devices.imitated)
        self._usual: list[Tensor] = []
        """The inputs in float32, where nobody said a dtype and the model's own was chosen."""
        self._operations = 0
        self._as_made = True
        """Whether the model is made in training mode."""
        self._modes: list[str] = []
        self._ended = False  # early
        self._output: list[ComparedValues] | None = None
        self._reference: list[ComparedValues] | None = None
        self._parameters: frozenset[str] = frozenset()

    def diagnoses(self) -> Iterator[Diagnosis]:
        """Examine, then try the fixes. Raises `BadInput` where nothing could be examined."""
        found = self.examine()
        if self._usual and not self._ended:
            found = self._in_usual_dtype(found)
        yield found
        if self._request.fixes:
            yield with_fixes(found, self._collector, Trials(self._again, self._progress, self._request.until))

    def _in_usual_dtype(self, found: Diagnosis) -> Diagnosis:
        """The diagnosis with inputs of float32, where only the model's own dtype, which was chosen for them, mixes
        dtypes; and where only float32 does, a note that says so."""
        other = Doctor(self._builder, self._devices, self._request, self._usual, self._progress)
        try:
            usual = other.examine()
        except BadInput:  # forward refuses them itself
            return found
        mixed, mixed_by_usual = ([item for item in one.problems if item.rule == MIXED] for one in (found, usual))
        if mixed and not mixed_by_usual:
            self._collector, self._tensors = other._collector, self._usual
            return usual
        if mixed:
            return found
        for item in mixed_by_usual:
            message = f"An input of float32, which PyTorch makes unless told otherwise, fails here: {item.message}"
            place = SourceLocation(item.file, item.line, "")
            self._collector.add(MIXED, message, str(item.fix), path=item.path, place=place, severity="note")
        return self._diagnosis()

    def _again(self) -> Outcome:
        """The same examination once more."""
        other = Doctor(self._builder, self._devices, self._request, self._tensors, trial=True)
        found = other.examine()
        return Outcome(found, other._ended, other._output, other._reference, other._parameters)

    def examine(self) -> Diagnosis:
        """Examine, without fixes. Raises `BadInput` where nothing could be examined."""
        kind = torch.device(self._info.id).type
        with kept(self._request.seed), generators_kept(kind), self._cuda, eagerly(self._collector), deep():
            origins = Origins()
            try:
                self._examine(origins)
            finally:
                origins.close()
        return self._diagnosis()

    def _diagnosis(self) -> Diagnosis:
        return diagnosis(
            self._collector,
            self._request.source,
            self._info,
            train=self._request.train,
            modes=tuple(self._modes),
            inputs=self._text,
            operations=self._operations,
        )

    def _examine(self, origins: Origins) -> None:
        self._progress(0.0, f"making {self._builder.title}")
        model = self._made(origins)
        if model is None:
            return
        device = self._info.id
        checks = StaticChecks(model, origins, self._collector)
        self._look("as it was made", checks.before)
        report_summed_losses(self._own_files(model), self._collector)
        given = self._given(model)
        self._progress(0.3, f"moving it to {device}")
        placed = moved(model, self._info, self._dtype, self._collector)
        self._look("after the move", lambda: checks.moved(None if placed is None else device))
        if placed is None:
            if given is not None:
                self._collector.not_checked(FORWARD, f"the model did not get to {device}, so nothing could run there.")
            return
        if given is not None:
            self._progress(0.4, f"forward on {device}")
            run = _Placed(placed, given, origins)
            work = self._ran(run, checks)
            if self._training or reads_mode(model):
                self._ran_otherwise(run)
            if work is not None:
                self._look("after the run", lambda: checks.ran(work.went_back, work.modules, explained=work.is_over))
        self._look_at_seeds(model, checks)

    # --- before anything runs

    def _made(self, origins: Origins) -> nn.Module | None:
        """The model; None where it could not be made on this device, which is reported then."""
        before = torch.get_default_dtype(), default_device()
        try:
            with origins.recording():
                model = self._builder.build(self._request.seed)
                cut_computed(model)
        except BadInput as error:
            if not self._errors():
                raise
            self._collector.not_checked("the model", str(error))
            return None
        dtype, device = torch.get_default_dtype(), default_device()
        if dtype != before[0]:
            self._note_default("dtype-promotion", "dtype", str(dtype))
        if device != before[1]:
            self._note_default("default-device", "device", self._cuda.name_of(str(device)))
        model = unwrapped(model, self._collector)
        self._as_made = model.training
        if self._info.simulated:
            note_quantised(model, self._collector)
        return model

    def _note_default(self, rule: str, what: str, value: str) -> None:
        self._collector.add(
            rule,
            f"Making the model sets the default {what} to {value}: every tensor that names none gets it, in the whole"
            " process.",
            f"Name the {what} where a tensor is made, and leave the default as it is.",
            path="",
            severity="note",
        )

    def _given(self, model: nn.Module) -> list[Tensor] | None:
        """What forward gets, on the CPU; None where that is unknown."""
        if self._tensors is not None:
            self._named = [self._dtype is None] * len(self._tensors)
            return list(self._tensors)
        self._progress(0.2, "finding out what its forward takes")
        try:
            given, specs = inputs_for(self._builder, single(model), self._request.inputs, self._request.seed)
        except UnknownInputs as unknown:
            failure = None if unknown.failure is None else failure_of(unknown.failure, model, "cpu")
            if failure is not None and failure.no_forward:
                self._collector.not_checked(FORWARD, f"{failure.description}.")
                return None
            reason = "" if failure is None else f" ({failure.description}{failure.at})"
            self._collector.not_checked(
                FORWARD,
                f"its inputs are unknown: it wants {unknown.arguments}, and no guess worked{reason}; give the"
                f" shapes, as in --input {unknown.example}, with a dtype where one is not floating: 2x16:int64.",
            )
            return None
        said, usual = [], []
        for spec, item in zip(specs, given, strict=True):
            self._named.append(spec.dtype is not None)
            if spec.dtype is None and item.dtype is not torch.float32:
                spec = replace(spec, dtype=item.dtype)
                item = item.float()
            said.append(spec)
            usual.append(item)
        self._text = specs_text(said)
        if said != list(specs) and self._dtype is None:
            self._usual = usual
        return given

    def _own_files(self, model: nn.Module) -> list[str]:
        """The user's files: the one that was named, and those of the model's classes."""
        named, _, _ = self._request.source.partition(":")
        files = {os.path.abspath(os.path.join(self._request.folder, named))}
        for _, module in named_modules(model):
            source = class_source(type(module))
            if source is not None and not source.library:
                files.add(source.file)
        return sorted(files)

    def _look(self, when: str, rules: Callable[[], object]) -> None:
        """Apply static rules; code of the model's may raise there (its properties, its `__getattr__`)."""
        try:
            rules()
        except Exception as error:
            failure = failure_of(error, None, self._info.id)
            self._collector.not_checked(
                f"the attributes {when}",
                f"the model raised when it was looked at: {failure.description}.",
                failure.place,
            )

    # --- the run

    def _tracing(
        self, run: _Placed, inputs: list[Tensor], collector: FindingCollector, gradients: Gradients | None = None
    ) -> OpTracer:
        seed_all(self._request.seed)
        return OpTracer(run.model, self._info.id, collector, run.origins, inputs, gradients)

    def _ran(self, run: _Placed, checks: StaticChecks) -> ForwardWork | None:
        """Run it and watch; None where its forward failed, which is reported then."""
        model, train, collector = run.model, self._request.train, self._collector
        inputs = self._there(run)
        branches = Branches(model, self._info)
        compared = self._trial or bool(branches)
        weights: list[ComparedValues] | None = None
        if compared:
            self._parameters = frozenset(name for name, _ in model.named_parameters())
            weights = values_of(list(model.parameters()))
        work = ForwardWork(model, train, self._info.id, self._progress, keep=compared)
        self._modes.append(MODES[train])
        known = len(collector.findings())
        gradients = Gradients(model, inputs) if train else None
        tracing = self._tracing(run, inputs, collector, gradients)
        try:
            with tracing, branches.noted():
                work.run(inputs)
            if gradients is not None:
                self._look("without a gradient", functools.partial(gradients.explain, checks.place, collector))
            if self._info.id != "cpu":  # where everything is on the CPU, what stays behind there makes nothing fail
                collector.used = tracing.run.sources.used
            self._once_more(run)
            work.step()
            if branches:
                self._progress(0.8, "comparing with the CPU")
                branches.compare(lambda: self._differs(work.output, run, weights), collector)
            self._look("kept", lambda: growing(model, self._there(run), collector, train))
        except (Exception, SystemExit) as error:
            failure = self._failure(error, tracing)
            if work.stage == BACKWARD and failure.place is None and failure.kind == "other":
                again = ForwardWork(model, train, self._info.id)
                failure = failure._replace(place=forward_line(functools.partial(again.run, inputs)))
            del inputs
            if work.stage != STEP and failure.kind == "other":
                self._once_more(run, failure)
            self._failed(failure, work.stage, known, run)
            self._ended = True
            return None if work.stage == FORWARD else work
        finally:
            self._operations, self._output = tracing.operations, work.output
            if self._trial:
                self._reference = self._twin().output(self._converted(run.given), weights)
            if gradients is not None:
                gradients.close()
        if work.without_gradient:
            collector.not_checked("the backward", "nothing in what forward returns has a gradient to give.")
        return work

    def _failure(self, error: BaseException, tracing: OpTracer) -> Failure:
        failure = failure_of(error, tracing.model, self._info.id)
        if tracing.run.irregular and failure.kind == "other":
            return failure._replace(kind="imitation")
        return failure

    def _differs(self, ours: list[ComparedValues] | None, run: _Placed, weights: list[ComparedValues] | None) -> bool:
        """Whether forward returns something else where there is only the CPU."""
        theirs = self._twin().output(self._converted(run.given), weights)
        return ours is not None and theirs is not None and not alike(ours, theirs, BY_DEVICE)

    def _ran_otherwise(self, run: _Placed) -> None:
        """Forward in the other mode, to find what only that does. Where that fails on the CPU as well, and the model is
        not even made in that mode, it says nothing."""
        training, collector = not self._request.train, self._collector
        work = ForwardWork(run.model, self._request.train, self._info.id, self._progress, training=training)
        known = len(collector.findings())
        with collector.in_mode(MODES[training]), warnings.catch_warnings(action="ignore"):  # nobody asked for this run
            inputs = self._there(run)
            tracing = self._tracing(run, inputs, collector)
            try:
                with tracing:
                    work.run(inputs)
                self._modes.append(MODES[training])
                self._once_more(run, training=training)
            except (Exception, SystemExit) as error:
                self._failed(self._failure(error, tracing), work.stage, known, run, training)
        self._operations += tracing.operations
        used = {} if collector.used is None else collector.used
        for path, effects in tracing.run.sources.used.items():
            used.setdefault(path, set()).update(effects)

    def _once_more(self, run: _Placed, failed: Failure | None = None, training: bool | None = None) -> None:
        """A second call, where the first one was slow: what a model keeps after its first call is not slow at every
        call.

        It gets the same inputs and random numbers. Where it ends otherwise than the first one, which may have `failed`,
        it says nothing: a state that was kept has no second backward.
        """
        if not self._collector.found_now(AT_EVERY_CALL):
            return
        second, again = FindingCollector(), None
        work = ForwardWork(run.model, self._request.train, self._info.id, training=training)
        try:
            with self._collector.ignoring():
                inputs = self._there(run)
                with self._tracing(run, inputs, second):
                    work.run(inputs)
        except (Exception, SystemExit) as error:
            again = failure_of(error, run.model, self._info.id)
        if again is None or failed is None:
            same = again is failed
        else:
            same = (again.description, again.place) == (failed.description, failed.place)
        if same:
            self._collector.once(AT_EVERY_CALL, second)

    def _there(self, run: _Placed) -> list[Tensor]:
        """The inputs on the device, for a model on several that of its first parameter; what accelerate has dispatched
        moves its inputs itself."""
        converted = self._converted(run.given)
        if dispatched(named_modules(run.model)) is not None:
            return converted
        device = next(run.model.parameters()).device if split_by_hand(run.model) else self._info.id
        return [item.to(device) for item in converted]

    def _converted(self, given: list[Tensor]) -> list[Tensor]:
        """The inputs in the dtype that the model is converted to, except where another one was asked for."""
        if self._dtype is None:
            return given
        converted = []
        for item, named in zip(given, self._named, strict=True):
            converted.append(item if named or not item.is_floating_point() else item.to(self._dtype))
        return converted

    def _failed(self, failure: Failure, stage: str, known: int, run: _Placed, training: bool | None = None) -> None:
        """Say what a failure in a stage means; `known`: how many findings there were before."""
        collector, device, place = self._collector, self._info.id, failure.place
        collector.path = ""
        if training is not None:
            stage = f"{stage} in {MODES[training]} mode"
        rest = stage if stage == STEP else f"the rest of {stage}"
        why = f"it ended{failure.at}: {failure.description}. Fix that and check again."
        if any(item.rule in DEVICES_MEET and item.severity == "error" for item in collector.findings()[known:]):
            pass
        elif failure.kind == "memory":
            message, fix = out_of_memory(failure, self._info, stage.capitalize())
            collector.add("fails-on-device", message, fix, path=failure.path, place=place)
            why = f"{device} was full{failure.at}."
        elif failure.kind == "host":
            rest = stage
            why = f"this machine has too little memory for its values ({failure.description}); give smaller inputs."
        elif failure.kind == "imitation":
            why = f"{failure.description}: a card could do that, a virtual GPU cannot."
        else:
            self._progress(0.8, "trying the same on the CPU")
            there, reason = self._twin(training).failure(self._converted(run.given))
            if there is not None:
                hint = arguments_hint(run.model, len(run.given)) if issubclass(there.error, TypeError) else ""
                why = f"fails on the CPU as well: {there.description}{there.at or failure.at}{hint}"
                if training is not None and training != self._as_made:
                    return
                if training is None and not self._errors():
                    raise BadInput(f"'{self._builder.title}' {why}")
                why, place = f"it {why}.", there.place
            elif reason:
                why = f"{failure.description}{failure.at}; whether that is the device's doing is not known: {reason}."
            else:
                collector.add(
                    "fails-on-device",
                    f"{stage.capitalize()} works on the CPU and raises on {device}: {failure.description}.",
                    failure.fix,
                    path=failure.path,
                    place=place,
                )
                why = f"it ended{failure.at}. Fix that and check again."
        collector.not_checked(rest, why, place)

    def _twin(self, training: bool | None = None) -> CpuTwin:
        request = self._request
        return CpuTwin(self._builder, self._collector, request.seed, self._dtype, request.train, training)

    def _look_at_seeds(self, model: nn.Module, checks: StaticChecks) -> None:
        """Whether a buffer that no checkpoint has was drawn by chance: another model of other initial values shows
        it."""
        if not self._builder.seeded or not any(
            module._non_persistent_buffers_set for _, module in named_modules(model)
        ):
            return
        self._progress(0.9, "making it again with another seed")
        try:
            with OnCpu():
                torch.default_generator.manual_seed(self._request.seed + 1)
                other = unwrapped(self._builder.build_on_cpu(self._request.seed + 1), self._collector)
        except BadInput as error:
            self._collector.not_checked("the non-persistent buffers", f"it could not be made a second time: {error}.")
            return
        self._look("of a second one", lambda: checks.compare(other))

    def _errors(self) -> bool:
        return any(finding.severity != "note" for finding in self._collector.findings())
