"""The Fit tab's mode for serving: the form, the table, the chosen card."""

from fakes.fit_pages import planned, type_into
from fakes.fits import GIB, SERVING, fit
from PySide6.QtCore import Qt

from devexplorer.core.planner.records import FitBytes, FitReport, FitSpec, ServingFit, ServingSpec
from devexplorer.gui.fit.rows import RATE, STEP

LEFT = Qt.MouseButton.LeftButton
L4 = "NVIDIA L4"
SPEC = FitSpec(
    source="transformers:llama", gpus=(L4,), batch=16, options=False,
    serving=ServingSpec(generate=512, prompt=2048, kv_dtype="float8_e4m3fn"),
)  # fmt: skip
PARTS = FitBytes(parameters=8 * GIB, kv_cache=4 * GIB, activations=GIB, context=GIB // 2)


def reported(**more):
    return FitReport(spec=SPEC, fits=(fit(L4, 22 * GIB, PARTS, serving=SERVING, **more),), inputs="16x2048:int64")


def test_the_mode_shows_its_own_fields_only(qtbot, panel):
    assert panel.form.serving.prompt.isHidden() or not panel.form.serving.prompt.isVisibleTo(panel)
    qtbot.mouseClick(panel.form.serving.on, LEFT)
    assert panel.form.serving.prompt.isVisibleTo(panel)
    assert panel.form.serving.kv_dtype.isVisibleTo(panel)
    for field in (panel.form.train, panel.form.optimizer, panel.form.options.button, panel.form.inputs_edit):
        assert not field.isVisibleTo(panel)
    qtbot.mouseClick(panel.form.serving.on, LEFT)
    assert panel.form.train.isVisibleTo(panel)
    assert not panel.form.serving.prompt.isVisibleTo(panel)


def test_what_is_asked_for(qtbot, panel, sent):
    type_into(qtbot, panel.form.model_edit, "transformers:llama")
    qtbot.mouseClick(panel.form.serving.on, LEFT)
    type_into(qtbot, panel.form.batch_edit, "16")
    type_into(qtbot, panel.form.serving.prompt, "2048")
    type_into(qtbot, panel.form.serving.generate, "512")
    type_into(qtbot, panel.form.serving.cards, "2")
    type_into(qtbot, panel.form.serving.block, "24")
    next(action for action in panel.form.serving.chunk.menu.actions() if action.text() == "2048").trigger()
    panel.form.serving.kv_dtype.choose("float8_e4m3fn")
    panel.form.serving.weights.choose("int4")
    qtbot.mouseClick(panel.start_button, LEFT)
    (command,) = sent
    assert command.spec == FitSpec(
        source="transformers:llama",
        batch=16,
        options=False,
        patience_seconds=60.0,
        serving=ServingSpec(
            generate=512,
            prompt=2048,
            kv_dtype="float8_e4m3fn",
            kv_block=24,
            tensor_parallel=2,
            prefill_chunk=2048,
            weights="int4",
        ),
    )


def test_what_is_wrong_with_it(qtbot, panel, sent):
    type_into(qtbot, panel.form.model_edit, "transformers:llama")
    qtbot.mouseClick(panel.form.serving.on, LEFT)
    type_into(qtbot, panel.form.serving.generate, "0")
    assert not panel.start_button.isEnabled()
    assert "Generate '0' is not" in panel.start_button.toolTip()
    type_into(qtbot, panel.form.serving.generate, "5")
    type_into(qtbot, panel.form.serving.block, "0")
    assert "KV blocks '0' is not" in panel.start_button.toolTip()
    panel.form.serving.block.clear()
    assert panel.start_button.isEnabled()
    panel.form.precision.choose((None, "bfloat16"))
    assert "choose one instead of autocast" in panel.start_button.toolTip()
    assert not sent


def test_the_table_says_first_token_and_tokens_a_second(panel, state):
    planned(panel, state, reported())
    heads = [panel.table.rows_model.headerData(column, Qt.Orientation.Horizontal) for column in (STEP, RATE)]
    assert heads == ["simulated first token", "simulated tokens/s"]
    (row,) = panel.table.rows
    assert (row.cells[STEP].text, row.cells[RATE].text) == ("200 to 300 ms", "700 to 900")
    assert "About 50.0 tokens/s for each user" in row.cells[RATE].tip
    assert "16 prompts of 2,048 tokens, 512 generated, KV cache in float8_e4m3fn" in panel.caption.full_text
    assert "(simulated)" in panel.caption.full_text


def test_the_chosen_card(panel, state):
    planned(panel, state, reported())
    text = panel.details.batch.text().replace("\u2060", "")
    assert "KV cache 4.00 GiB, 21 layers with a sliding window and room for 1,024 tokens, 21 layers with full" in text
    assert "Longest context 8,192 tokens, all that the model has positions for." in text
    assert (
        "First token after 200 to 300 ms (simulated). Then 700 to 900 tokens/s (simulated), about 50.0 for each user,"
        in text
    )
    assert panel.details.parts.numbers["kv_cache"].text() == "4.00 GiB"
    assert not panel.details.helps.isVisibleTo(panel.details)


def test_what_does_not_fit(panel, state):
    small = ServingFit(kv_cache_bytes=GIB, kv_bytes_per_token=1, cache=SERVING.cache, largest_context=0)
    report = FitReport(spec=SPEC, fits=(fit(L4, GIB, PARTS, serving=small),))
    planned(panel, state, report)
    (row,) = panel.table.rows
    assert (row.cells[STEP].text, row.cells[RATE].text) == ("—", "—")
    assert "No batch fits. No context fits." in panel.details.batch.text()
