"""The form of the Fit page: which model, which workload, on which cards. Main thread; reads the state."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from PySide6.QtCore import Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

from devexplorer.core.base import OPTIMIZERS, Findings, object_name, parse_input_shapes
from devexplorer.core.devices.profiles import Profile, name_words, parse_planned, planned_profiles
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.planner.records import FitSpec, PlanFit, ServingSpec
from devexplorer.core.records import Calibration
from devexplorer.core.session import State
from devexplorer.gui.forms.page import FormPage
from devexplorer.gui.widgets import ButtonMenu, Choice, MenuEdit, check_box, line_edit, push_button, why_not_live

CHECKPOINTING = "Compute the activations of repeated blocks again in backward instead of keeping them."
TF32 = "Matrix products of float32 in TF32, where a card has it; convolutions use it anyway, as PyTorch's defaults do."
CHANNELS_LAST = "Weights of convolutions and images in torch.channels_last, which matrix units compute in."
INPUT_COPY = "Each step waits for a copy of its inputs from pageable memory of the host."
TRAINING_ONLY = "This is about training."


class StepOptions(ButtonMenu):
    """`button` opens it and says how many are chosen; `changed`: the user, or `choose`, has changed one."""

    changed = Signal()

    def __init__(self) -> None:
        self.button = push_button("Options", name="Options of the step")
        super().__init__(self.button)
        self.setToolTipsVisible(True)
        self.checkpointing = self._option("Checkpointing", CHECKPOINTING)
        self.tf32 = self._option("TF32 products", TF32)
        self.channels_last = self._option("channels_last", CHANNELS_LAST)
        self.input_copy = self._option("Input copy", INPUT_COPY)
        self.button.setMenu(self)
        self._show_chosen()

    def _option(self, text: str, meaning: str) -> QAction:
        action = self.addAction(text)
        action.setCheckable(True)
        action.setToolTip(meaning)
        action.toggled.connect(self._on_toggled)
        return action

    def _on_toggled(self, _on: bool) -> None:
        self._show_chosen()
        self.changed.emit()

    def _show_chosen(self) -> None:
        chosen = [action.text() for action in self.actions() if action.isChecked() and action.isEnabled()]
        self.button.setText(f"Options: {len(chosen)}" if chosen else "Options")
        self.button.setToolTip(", ".join(chosen) or "Checkpointing, TF32, channels_last, input copy")

    def set_training(self, training: bool) -> None:
        """Checkpoints are about backward."""
        self.checkpointing.setEnabled(training)
        self.checkpointing.setToolTip(CHECKPOINTING if training else TRAINING_ONLY)
        self._show_chosen()

    def choose(self, *, checkpointing: bool, tf32: bool, channels_last: bool, input_copy: bool) -> None:
        """Choose exactly these."""
        self.checkpointing.setChecked(checkpointing)
        self.tf32.setChecked(tf32)
        self.channels_last.setChecked(channels_last)
        self.input_copy.setChecked(input_copy)


KV_DTYPES = (
    (None, "KV as activations", "Keys and values in the dtype of the activations"),
    ("float8_e4m3fn", "KV float8", "Keys and values in float8_e4m3fn, where the card has it"),
    ("int8", "KV int8", "Keys and values in int8, where the card has it"),
)
WEIGHTS = (
    ("", "own weights", "As the configuration says: in the model's dtype, or quantised"),
    ("int4", "int4 weights", "compressed-tensors: 4 bits in groups of 128"),
    ("int8", "int8 weights", "compressed-tensors: 8 bits, activations too"),
    ("fp8", "fp8 weights", "8 bits in blocks of 128 x 128, activations too"),
    ("gptq", "GPTQ", "4 bits in groups of 128, with zero points and the order of groups"),
    ("awq", "AWQ", "4 bits in groups of 128, with zero points"),
    ("bnb-nf4", "NF4", "bitsandbytes in 4 bits"),
    ("bnb-int8", "LLM.int8()", "bitsandbytes in 8 bits"),
)
SERVE = (
    "Generate text with a language model of transformers: KV cache, time to the first token, tokens/s, longest context"
)
PROMPT, GENERATE = "512", "128"
WHOLE = "whole"
BLOCKS = "Tokens in a block of a paged KV cache (vLLM: 16). Empty: each sequence has room for all its tokens at once."
CHUNK = "The most tokens of a prompt that go through the model at a time. Empty: the whole prompt."
BLOCK_SIZES, CHUNK_SIZES = (16, 32, 64, 128), (512, 2048, 8192)
"""What the menus offer, as engines have them; others can be typed."""


class ServingForm:
    """Adds its fields to the page; shown only while it is on, and those of `others` only while it is not."""

    def __init__(self, page: FormPage) -> None:
        self.on = check_box("Serve", tip=SERVE)
        self.prompt = line_edit(PROMPT, PROMPT, "Tokens of each prompt", 52)
        self.generate = line_edit(GENERATE, GENERATE, "Tokens that each sequence gets", 52)
        self.kv_dtype = Choice("dtype of the KV cache", KV_DTYPES)
        self.weights = Choice("Quantisation of the weights", WEIGHTS)
        self.block = _tokens("Tokens in a block of the KV cache", BLOCK_SIZES, BLOCKS)
        self.chunk = _tokens("Tokens in a piece of the prompt", CHUNK_SIZES, CHUNK)
        self.cards = line_edit("1", "1", "Cards over which every layer is split", 36, tip="Tensor parallelism")
        page.add_field("", self.on)
        self._own = [
            page.add_field(words, field)
            for words, field in (
                ("prompt", self.prompt),
                ("generate", self.generate),
                ("", self.kv_dtype),
                ("KV blocks", self.block),
                ("prefill", self.chunk),
                ("", self.weights),
                ("cards each", self.cards),
            )
        ]

    @property
    def is_on(self) -> bool:
        """Whether text is to be generated."""
        return self.on.isChecked()

    def show_fields(self, others: Iterable[QWidget]) -> None:
        """Its fields, or those that mean nothing for it."""
        for field in self._own:
            field.setVisible(self.is_on)
        for field in others:
            field.setVisible(not self.is_on)

    def spec(self, findings: Findings, autocast: str | None) -> ServingSpec | None:
        """What the fields say; None while it is off."""
        if not self.is_on:
            return None
        counts = [
            findings.count(field.text(), name)
            for field, name in ((self.generate, "generate"), (self.prompt, "prompt"), (self.cards, "cards each"))
        ]
        block, chunk = (
            findings.count(field.text(), name) if field.text().strip() else None
            for field, name in ((self.block, "KV blocks"), (self.chunk, "prefill"))
        )
        if autocast is not None:
            findings.add("text is generated in one dtype; choose one instead of autocast")
        generate, prompt, cards = (count or 1 for count in counts)
        return ServingSpec(
            generate=generate,
            prompt=prompt,
            kv_dtype=self.kv_dtype.value,
            kv_block=block,
            prefill_chunk=chunk,
            tensor_parallel=cards,
            weights=self.weights.value,
        )

    def fill(self, serving: ServingSpec | None) -> None:
        """Set the fields to this."""
        self.on.setChecked(serving is not None)
        if serving is not None:
            self.generate.setText(str(serving.generate))
            self.prompt.setText(str(serving.prompt))
            self.cards.setText(str(serving.tensor_parallel))
            self.kv_dtype.choose(serving.kv_dtype)
            self.block.fill("" if serving.kv_block is None else str(serving.kv_block))
            self.chunk.fill("" if serving.prefill_chunk is None else str(serving.prefill_chunk))
            self.weights.choose(serving.weights)


def _tokens(name: str, offered: Iterable[int], tip: str) -> MenuEdit:
    result = MenuEdit("", name, [(WHOLE, ""), *((str(count), str(count)) for count in offered)], 96, WHOLE)
    result.setToolTip(tip)
    return result


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
            input_copy=self.options.input_copy.isChecked() and serving is None,
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
        self.options.choose(
            checkpointing=spec.checkpointing,
            tf32=spec.tf32,
            channels_last=spec.channels_last,
            input_copy=spec.input_copy,
        )
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
