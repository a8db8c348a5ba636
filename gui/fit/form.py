"""The form of the Fit page: which model, which workload, on which cards. Main thread; reads the state."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from devexplorer.core.base import OPTIMIZERS, Findings, object_name, parse_input_shapes
from devexplorer.core.devices.planned_profiles import parse_planned, planned_profiles
from devexplorer.core.devices.profiles import Profile, name_words
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.records import Calibration, FitSpec, PlanFit
from devexplorer.core.session import State
from devexplorer.gui.fit.options import TRAINING_ONLY, StepOptions
from devexplorer.gui.fit.serving import ServingForm
from devexplorer.gui.forms.page import FormPage
from devexplorer.gui.widgets import check_box, line_edit, why_not_live
from devexplorer.gui.widgets.form_fields import Choice, MenuEdit

PATIENCE_S = 60.0
"""In a window, with progress and Stop, a plan may take longer than on the command line."""
DTYPES = ("float32", "bfloat16", "float16")
PRECISIONS = (
    ((None, None), "model's dtype", "As the model is"),
    *(((one, None), one, f"Parameters and inputs in {one}") for one in DTYPES),
    *(
        ((None, one), f"autocast {one}", f"Products are computed in {one}, parameters stay in float32")
        for one in DTYPES[1:]
    ),
)
"""Parameters in another dtype, or products only: never both."""
SOURCES = ("gpt2", "bert", "llama", "vit")
"""Models of transformers that the menu offers; any other can be typed."""


class FitForm:
    """Adds its fields to the page, which checks and starts what they say."""

    def __init__(self, page: FormPage, state: State) -> None:
        self._state = state
        self._typed = False
        """Whether the user has chosen the model; until then it is the selected one."""
        self._models: list[str] = []
        """Those of the workspace that the menu offers."""
        self._devices: list[str] = []
        self._calibrations: tuple[Calibration, ...] = ()
        self.profiles: dict[str, Profile] = planned_profiles()
        self.own: list[str] = []
        """Profiles of the devices that are here: the menu and the table begin with them."""
        self.model_edit = MenuEdit("", "model", _library(), 172, "lenet, transformers:gpt2")
        self.model_edit.setToolTip("A model of the workspace, a sample model, or transformers:TYPE?option=value")
        self.model_edit.textEdited.connect(self._on_typed)
        self.batch_edit = line_edit("8", "8", "Batch", 68)
        self.precision = Choice("dtype and autocast", PRECISIONS)
        self.train = check_box(
            "Train", tip="Forward, backward and a step of the optimizer; otherwise a forward without gradients"
        )
        self.train.setChecked(True)
        self.optimizer = Choice("Optimizer", [(kind, known.title, "") for kind, known in OPTIMIZERS.items()])
        self.optimizer.choose("adamw")
        self.options = StepOptions()
        self.options.changed.connect(page.check)
        self.cards_edit = MenuEdit("", "cards", _cards(self.profiles), 128, "every card")
        self.cards_edit.setToolTip(
            "Empty: every card there is a profile of; or for example 2x Tesla T4, over which the model is split"
        )
        self.inputs_edit = line_edit(
            "",
            "automatic",
            "Input shapes",
            124,
            tip="What forward gets, as in 4x12 or 8x16:int64, several with commas; the first dimension is the batch",
        )
        page.add_fields(
            ("", self.model_edit),
            ("batch", self.batch_edit),
            ("", self.precision),
            ("", self.train),
            ("", self.optimizer),
            ("", self.options.button),
        )
        self.serving = ServingForm(page)
        page.add_field("on", self.cards_edit)
        inputs = page.add_field("input", self.inputs_edit)
        self._not_served = (self.train, self.optimizer, self.options.button, inputs)
        """Fields that mean nothing where text is generated."""

    def command(self) -> PlanFit:
        """What the fields come to. Raises one `BadInput` with everything that is wrong."""
        findings = Findings()
        text = self.model_edit.text().strip()
        target = text if text in self._state.models else ""
        self._check_model(text, target, findings)
        batch = findings.count(self.batch_edit.text(), "batch")
        cards = self.cards_edit.text().strip()
        if cards:
            findings.checked(lambda: parse_planned(cards, self._calibrations))
        inputs = "" if self.serving.is_on else self.inputs_edit.text().strip()
        if inputs:
            findings.checked(lambda: parse_input_shapes(inputs))
        dtype, autocast = self.precision.value
        serving = self.serving.spec(findings, autocast)
        findings.demand_none()
        assert batch is not None
        train = self.train.isChecked() and serving is None
        spec = FitSpec(
            source="" if target else text,
            gpus=(cards,) if cards else (),
            batch=batch,
            dtype=dtype,
            autocast=autocast,
            train=train,
            optimizer=self.optimizer.value,
            checkpointing=self.options.checkpointing.isChecked() and train,
            tf32=self.options.tf32.isChecked(),
            channels_last=self.options.channels_last.isChecked(),
            inputs=inputs,
            calibrations=self._calibrations,
            options=bool(cards) and serving is None,
            serving=serving,
            patience_seconds=PATIENCE_S,
        )
        return PlanFit(spec=spec, target=target)

    def _check_model(self, text: str, target: str, findings: Findings) -> None:
        if not text:
            findings.add("choose a model")
        elif not target and ":" not in text and self._recipes and text.partition("?")[0] not in self._recipes:
            findings.add(
                f"there is no model '{text}'; choose one of the workspace, a sample model or transformers:TYPE"
            )
        elif not target and ":" in text:
            source = findings.checked(lambda: parse(text))
            if source is not None and source.own_code:
                findings.add(
                    "your own code runs only after you allow it: open the model first, then choose it here by its name"
                )

    def show_fields(self) -> None:
        """Have those that mean something now."""
        training = self.train.isChecked()
        self.optimizer.setEnabled(training)
        self.optimizer.setToolTip("" if training else TRAINING_ONLY)
        self.options.set_training(training)
        self.serving.show_fields(self._not_served)

    def fill_in(self, spec: FitSpec, model: str) -> None:
        """Set every field to this."""
        self._typed = True
        texts = (
            (self.model_edit, model),
            (self.batch_edit, str(spec.batch)),
            (self.cards_edit, ", ".join(spec.gpus)),
            (self.inputs_edit, spec.inputs),
        )
        for field, text in texts:
            field.setText(text)
            field.setCursorPosition(0)
        self.precision.choose((spec.dtype, spec.autocast))
        self.train.setChecked(spec.train)
        self.optimizer.choose(spec.optimizer)
        self.options.choose(checkpointing=spec.checkpointing, tf32=spec.tf32, channels_last=spec.channels_last)
        self.serving.fill(spec.serving)

    # --- what there is to choose from

    def follow_selection(self, targets: tuple[str, ...]) -> None:
        """The selected model is meant, until the user types."""
        name = next(map(object_name, targets), None)
        if name in self._state.models and (not self._typed or not self.model_edit.text().strip()):
            self._typed = False
            self.model_edit.fill(name or "")

    def follow_state(self) -> None:
        """Offer the models and the devices as they are now."""
        self._follow_models()
        devices = [device.info.name for device in self._state.devices.values()]
        if devices != self._devices:
            self._devices = devices
            self._offer_cards()

    def set_calibrations(self, calibrations: tuple[Calibration, ...]) -> None:
        """Calibrated cards that can be planned for beside those of the datasheets."""
        self._calibrations, self.profiles = calibrations, planned_profiles(calibrations)
        self._offer_cards()

    def _offer_cards(self) -> None:
        here = set(map(name_words, self._devices))
        self.own = [name for name, profile in self.profiles.items() if name_words(profile.model) in here]
        self.cards_edit.offer(_cards(sorted(self.profiles, key=lambda name: name not in self.own)))

    def _follow_models(self) -> None:
        """Offer the models there are. One that was removed leaves the field too, unless what was typed still says a
        model: a sample model of the same name."""
        before, now = self._models, self._state.models
        if now == before or why_not_live(self._state) is not None:
            return
        self._models = now
        self.model_edit.offer([*((name, name) for name in now), *_library()])
        text = self.model_edit.text().strip()
        if text in before and text not in now and not (self._typed and text in self._recipes):
            self._typed = False
            self.model_edit.fill(now[0] if len(now) == 1 else "")

    def _on_typed(self) -> None:
        self._typed = True

    @property
    def _recipes(self) -> Collection[str]:
        return self._state.engine.recipes if self._state.engine is not None else ()


def _cards(names: Iterable[str]) -> list[tuple[str, str]]:
    return [("every card", ""), *((name, name) for name in names)]


def _library() -> list[tuple[str, str]]:
    return [(f"transformers:{name}", f"transformers:{name}") for name in SOURCES]
