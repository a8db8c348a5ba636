"""The Fit tab's mode for serving: the form, the table, the chosen card."""

from __future__ import annotations

import pytest
from fakes.bench_runs import CPU, T4S
from fakes.fits import GIB, fit
from fakes.host import hosted
from fakes.look_records import ENGINE, mlp, show, state_with
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.records import (
    Answer,
    CacheLayers,
    Command,
    FitBytes,
    FitPlanned,
    FitReport,
    FitSpec,
    JobEnded,
    JobStarted,
    PlanFit,
    ServingFit,
    ServingSpec,
)
from devexplorer.core.session.state import State
from devexplorer.gui.fit.page import FitPanel
from devexplorer.gui.fit.rows import RATE, STEP

LEFT = Qt.MouseButton.LeftButton
L4 = "NVIDIA L4"
SERVING = ServingFit(
    kv_cache_bytes=4 * GIB,
    kv_bytes_per_token=131_072,
    cache=(
        CacheLayers(kind="sliding", layers=21, tokens=1024, bytes=GIB),
        CacheLayers(kind="full", layers=21, tokens=2560, bytes=3 * GIB),
    ),
    largest_context=8192,
    context_limit="positions",
    prefill_seconds=0.25,
    prefill_seconds_low=0.2,
    prefill_seconds_high=0.3,
    decode_step_seconds=0.02,
    decode_tokens_per_s=800.0,
    decode_tokens_per_s_low=700.0,
    decode_tokens_per_s_high=900.0,
    decode_bound="bandwidth",
    decode_tokens_per_s_per_user=50.0,
    decode_tokens_per_s_per_card=800.0,
)
SPEC = FitSpec(
    source="transformers:llama", gpus=(L4,), batch=16, options=False,
    serving=ServingSpec(generate=512, prompt=2048, kv_dtype="float8_e4m3fn"),
)  # fmt: skip
PARTS = FitBytes(parameters=8 * GIB, kv_cache=4 * GIB, activations=GIB, context=GIB // 2)


@pytest.fixture
def state() -> State:
    state = state_with(CPU, *T4S)
    state.apply(ENGINE)
    show(state, mlp())
    return state


@pytest.fixture
def sent() -> list[Command]:
    return []


@pytest.fixture
def panel(qtbot: QtBot, state: State, sent: list[Command]) -> FitPanel:
    def make(host: QWidget) -> FitPanel:
        made = FitPanel(state)
        made.setParent(host)
        return made

    panel = hosted(qtbot, make, 1264, 274)
    panel.command_requested.connect(sent.append)
    return panel


def type_into(qtbot: QtBot, field, text: str) -> None:
    field.clear()
    qtbot.keyClicks(field, text)


def served(panel: FitPanel, state: State, report: FitReport, request: int = 7) -> None:
    state.apply(JobStarted(request=request, title="planning", time_unix_s=1.0, command=PlanFit(spec=report.spec)))
    state.apply(FitPlanned(request=request, target="", report=report))
    state.apply(Answer(request=request, title="planned", words="all cards"))
    state.apply(JobEnded(request=request, ok=True, time_unix_s=2.0))
    panel.refresh()


def reported(**more: object) -> FitReport:
    return FitReport(spec=SPEC, fits=(fit(L4, 22 * GIB, PARTS, serving=SERVING, **more),), inputs="16x2048:int64")


def test_the_mode_shows_its_own_fields_only(qtbot, panel):
    assert panel.serving.prompt.isHidden() or not panel.serving.prompt.isVisibleTo(panel)
    qtbot.mouseClick(panel.serving.on, LEFT)
    assert panel.serving.prompt.isVisibleTo(panel)
    assert panel.serving.kv_dtype.isVisibleTo(panel)
    for field in (panel.train, panel.optimizer, panel.options.button, panel.inputs_edit):
        assert not field.isVisibleTo(panel)
    qtbot.mouseClick(panel.serving.on, LEFT)
    assert panel.train.isVisibleTo(panel)
    assert not panel.serving.prompt.isVisibleTo(panel)


def test_what_is_asked_for(qtbot, panel, sent):
    type_into(qtbot, panel.model_edit, "transformers:llama")
    qtbot.mouseClick(panel.serving.on, LEFT)
    type_into(qtbot, panel.batch_edit, "16")
    type_into(qtbot, panel.serving.prompt, "2048")
    type_into(qtbot, panel.serving.generate, "512")
    type_into(qtbot, panel.serving.cards, "2")
    panel.serving.kv_dtype.choose("float8_e4m3fn")
    panel.serving.weights.choose("int4")
    qtbot.mouseClick(panel.start_button, LEFT)
    (command,) = sent
    assert command.spec == FitSpec(
        source="transformers:llama",
        batch=16,
        options=False,
        patience_seconds=60.0,
        serving=ServingSpec(generate=512, prompt=2048, kv_dtype="float8_e4m3fn", tensor_parallel=2, weights="int4"),
    )


def test_what_is_wrong_with_it(qtbot, panel, sent):
    type_into(qtbot, panel.model_edit, "transformers:llama")
    qtbot.mouseClick(panel.serving.on, LEFT)
    type_into(qtbot, panel.serving.generate, "0")
    assert not panel.start_button.isEnabled()
    assert "Generate '0' is not" in panel.start_button.toolTip()
    type_into(qtbot, panel.serving.generate, "5")
    assert panel.start_button.isEnabled()
    panel.precision.choose((None, "bfloat16"))
    assert "choose one instead of autocast" in panel.start_button.toolTip()
    assert not sent


def test_the_table_says_first_token_and_tokens_a_second(panel, state):
    served(panel, state, reported())
    heads = [panel.rows_model.headerData(column, Qt.Orientation.Horizontal) for column in (STEP, RATE)]
    assert heads == ["simulated first token", "simulated tokens/s"]
    (row,) = panel.rows_model.rows
    assert (row.cells[STEP].text, row.cells[RATE].text) == ("250 ms", "800")
    assert "700 to 900 tokens/s, about 50.0 for each user" in row.cells[RATE].tip
    assert "16 prompts of 2,048 tokens, 512 generated, KV cache float8_e4m3fn" in panel.caption.full_text
    assert "(simulated)" in panel.caption.full_text


def test_a_step_has_its_own_words_again_afterwards(panel, state):
    served(panel, state, reported())
    plain = FitReport(spec=FitSpec(source="mlp", gpus=(L4,)), fits=(fit(L4, 22 * GIB),))
    served(panel, state, plain, request=8)
    heads = [panel.rows_model.headerData(column, Qt.Orientation.Horizontal) for column in (STEP, RATE)]
    assert heads == ["simulated step", "simulated samples/s"]
    assert panel.details.helps.isVisibleTo(panel.details)


def test_the_chosen_card(panel, state):
    served(panel, state, reported())
    text = panel.details.batch.text().replace("\u2060", "")
    assert "KV cache 4.00 GiB: 21 layers with a sliding window, 21 layers with full attention." in text
    assert "Longest context: 8,192 tokens, all that the model has positions for." in text
    assert (
        "First token after 200 to 300 ms. Then 700 to 900 tokens/s, about 50.0 for each user, bound by bandwidth."
        in text
    )
    assert panel.details.parts.numbers["kv_cache"].text() == "4.00 GiB"
    assert not panel.details.helps.isVisibleTo(panel.details)


def test_what_does_not_fit(panel, state):
    small = ServingFit(kv_cache_bytes=GIB, kv_bytes_per_token=1, cache=SERVING.cache, largest_context=0)
    report = FitReport(spec=SPEC, fits=(fit(L4, GIB, PARTS, serving=small),))
    served(panel, state, report)
    (row,) = panel.rows_model.rows
    assert (row.cells[STEP].text, row.cells[RATE].text) == ("—", "—")
    assert "No batch fits. No context fits." in panel.details.batch.text()
