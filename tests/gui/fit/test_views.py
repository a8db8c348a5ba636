"""The views beside the cards of a plan: roofline, curve over the batch, cards side by side, published steps."""

import pytest
from fakes.fit_pages import planned, texts
from fakes.fits import fit, points, report
from msgspec.structs import replace
from PySide6.QtCore import Qt

from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.planner.published_steps import fitted_to, published, spec_of
from devexplorer.core.planner.records import FitSpec, ServingFit
from devexplorer.gui.fit.step_roofline import step_figures
from devexplorer.gui.fit.views import BATCH, EFFICIENCY, PUBLISHED, ROOFLINE, card_ranges

T4 = "Tesla T4"
H100 = "NVIDIA H100 80GB HBM3"
CURVE = points(1, 4, 16, 64, 128)


def choose(qtbot, panel, view):
    """By a click on its tab."""
    tabs = panel.views.tabs
    qtbot.mouseClick(tabs, Qt.MouseButton.LeftButton, pos=tabs.tabRect(view).center())
    assert panel.views.currentIndex() == view


def select(panel, gpu):
    panel.table.selectRow([row.key for row in panel.table.rows].index(gpu))


# --- the form


def test_tf32_channels_last_and_the_copy_of_inputs_are_in_the_menu_of_options(panel, sent):
    panel.set_selection(("mlp",))
    panel.form.options.tf32.trigger()
    panel.form.options.channels_last.trigger()
    panel.form.options.input_copy.trigger()
    assert panel.form.options.button.text() == "Options: 3"
    panel.start_button.click()
    (command,) = sent
    assert (command.spec.tf32, command.spec.channels_last, command.spec.checkpointing) == (True, True, False)
    assert command.spec.input_copy


# --- the roofline


def test_the_roofline_has_a_point_for_each_class_under_the_cards_limits(qtbot, panel, state):
    planned(panel, state, report())
    select(panel, H100)
    choose(qtbot, panel, ROOFLINE)
    picture = panel.views.roofline
    table = picture.figures()
    assert [row[0] for row in table.rows] == ["matrix products", "normalisation", "attention"]
    assert table.rows[0][3:5] == ("100", "2")
    assert table.rows[1][3:5] == ("—", "—"), "its FLOP are not counted"
    assert "3,350 GB/s" in table.note
    spots = picture.spots()
    assert spots[0][1] > spots[1][1] > spots[2][1], "the longer, the larger"
    assert spots[1][0].x() < spots[2][0].x() < spots[0][0].x()
    qtbot.keyClick(picture, Qt.Key.Key_Right)
    qtbot.keyClick(picture, Qt.Key.Key_Down)
    assert picture.at is not None
    assert picture.at.operations == "normalisation"
    qtbot.keyClick(picture, Qt.Key.Key_Escape)
    assert picture.at is None
    assert "simulated" in picture.accessibleName()


def test_the_ceilings_are_those_of_the_units_that_compute():
    profile = load_profiles()["NVIDIA A10"]
    found = fit("NVIDIA A10", 1 << 40)

    def names(spec):
        figures = step_figures(found, spec, profile)
        assert figures is not None
        return [name for name, _ in figures.rates]

    assert names(FitSpec(source="mlp")) == ["float32", "TF32"]
    assert names(FitSpec(source="mlp", autocast="bfloat16")) == ["float32", "bfloat16"]
    old = load_profiles()["GeForce GTX 1080 Ti"]
    figures = step_figures(found, FitSpec(source="mlp", dtype="float16"), old)
    assert [name for name, _ in figures.rates] == ["float32"], "it has no unit for float16"


def test_a_card_without_a_step_says_so(qtbot, panel, state):
    planned(panel, state, report())
    select(panel, T4)
    choose(qtbot, panel, ROOFLINE)
    assert panel.views.roofline.figures() is None
    assert "no simulated step" in panel.views.roofline.accessibleDescription()


# --- over the batch


def test_the_curve_is_asked_for_and_stays_with_its_card(qtbot, panel, state, sent):
    planned(panel, state, report())
    select(panel, H100)
    choose(qtbot, panel, BATCH)
    view = panel.views.curves
    assert view.currentWidget() is view.empty
    qtbot.mouseClick(view.empty.button, Qt.MouseButton.LeftButton)
    (asked,) = sent
    assert (asked.spec.gpus, asked.spec.curve, asked.spec.options) == ((H100,), True, False)
    planned(panel, state, replace(report(asked.spec), curve=CURVE), request=8)
    assert len(panel.table.rows) == len(load_profiles()), "the table stays"
    assert view.currentWidget() is not view.empty
    table = view.memory.figures()
    assert [row[0] for row in table.rows] == ["1", "4", "16", "64", "128"]
    assert "capacity 80.00 GiB" in table.note
    assert view.time.xs == [1, 4, 16, 64], "what does not fit has no time"
    assert "a batch of 128 does not fit" in view.note.full_text
    view.what.choose("rate")
    assert view.rate.isVisible()
    assert view.rate.series[0].points[0][1:] == pytest.approx((100, 80, 125))
    select(panel, "NVIDIA H200")
    assert view.currentWidget() is view.empty
    select(panel, H100)
    assert view.currentWidget() is not view.empty


# --- side by side


def test_cards_are_compared_by_samples_per_joule_and_by_samples_per_second():
    cards = [
        fit("fast", 1 << 40, samples_per_s=200.0, samples_per_s_low=150.0, samples_per_s_high=250.0,
            board_power_w=400.0),
        fit("small", 1 << 40, samples_per_s=60.0, samples_per_s_low=50.0, samples_per_s_high=70.0, board_power_w=60.0),
        fit("unknown", 1 << 40, board_power_w=None),
        fit("full", 1),
    ]  # fmt: skip
    energy = card_ranges(cards, "energy")
    assert [(row.gpu, row.text) for row in energy] == [
        ("small", "0.833 to 1.17"),
        ("fast", "0.375 to 0.625"),
        ("unknown", "—  no power limit known"),
        ("full", "—  does not fit"),
    ]
    assert [row.gpu for row in card_ranges(cards, "rate")] == ["fast", "small", "unknown", "full"]
    assert all("simulated" in row.tip.lower() for row in energy)


def test_generated_text_has_no_samples_whatever_the_power_limit():
    serving = ServingFit(kv_cache_bytes=1, kv_bytes_per_token=1, cache=())
    served = fit(T4, 1 << 40, serving=serving, samples_per_s=None, samples_per_s_low=None, samples_per_s_high=None)
    (row,) = card_ranges([served], "energy")
    assert row.text == "—  generates text, no samples"
    assert "power limit" not in row.tip


def test_the_bars_can_be_walked_with_the_keys_and_shown_as_a_table(qtbot, panel, state):
    planned(panel, state, report())
    choose(qtbot, panel, EFFICIENCY)
    view = panel.views.efficiency
    table = view.figures()
    assert len(table.rows) == len(load_profiles())
    assert table.columns[1] == "samples/J simulated"
    for _ in range(3):
        qtbot.keyClick(view.table, Qt.Key.Key_Down)
    assert view.table.currentIndex().row() == 2
    assert view.table.selected_key == table.rows[2][0]
    view.measure.choose("rate")
    table = view.figures()
    assert table.columns[1] == "samples/s simulated"


# --- published steps


def test_a_published_step_is_planned_and_compared_with_its_measurement(qtbot, panel, state, sent):
    choose(qtbot, panel, PUBLISHED)
    assert not panel.is_empty, "it needs no plan before"
    view = panel.views.published
    view.model.choose("resnet50")
    view.card.choose(T4)
    rows = view.table.rows
    assert rows
    assert {(row.cells[0].text, row.cells[1].text) for row in rows} == {("resnet50", T4)}
    assert not view.plan_button.isEnabled()
    view.table.selectRow(0)
    assert "Not planned yet" in view.compared.text()
    assert "https://" in view.about.text()
    qtbot.mouseClick(view.plan_button, Qt.MouseButton.LeftButton)
    (asked,) = sent
    assert (asked.spec.source, asked.spec.gpus, asked.spec.options) == ("resnet50", (T4,), False)
    assert panel.form.batch_edit.text() == str(asked.spec.batch)
    key = rows[0].key
    measured = next(float(row.samples_per_s) for index, (row, *_) in enumerate(view._steps) if index == key)
    speeds = {"samples_per_s": measured, "samples_per_s_low": measured / 1.25, "samples_per_s_high": measured * 1.25}
    found = fit(T4, 1 << 40, **speeds)
    planned(panel, state, replace(report(asked.spec), fits=(found,)), request=8)
    assert "the measurement is inside this range; prediction over measurement 1.00." in view.compared.text()
    assert "(simulated)" in view.compared.text()


def test_a_row_of_decoding_is_compared_by_its_tokens(qtbot, panel, state, sent):
    choose(qtbot, panel, PUBLISHED)
    view = panel.views.published
    view.model.choose("phi-1.5 decode")
    view.table.selectRow(0)
    assert view.table.rows[0].cells[3].text == "decoding"
    assert "Measured 42.6 tokens/s" in view.compared.text()
    qtbot.mouseClick(view.plan_button, Qt.MouseButton.LeftButton)
    (asked,) = sent
    assert panel.form.serving.generate.text() == str(asked.spec.serving.generate)
    rates = {"decode_tokens_per_s": 59.2, "decode_tokens_per_s_low": 33.3, "decode_tokens_per_s_high": 105.2}
    serving = ServingFit(kv_cache_bytes=1, kv_bytes_per_token=1, cache=(), **rates)
    found = fit(asked.spec.gpus[0], 1 << 40, serving=serving)
    planned(panel, state, replace(report(asked.spec), fits=(found,)), request=8)
    text = "Predicted 33.3 to 105 tokens/s (simulated): the measurement is inside this range; prediction over"
    assert f"{text} measurement 1.39." in view.compared.text()


def test_whether_the_model_was_fitted_to_a_row_is_said(qtbot, panel):
    choose(qtbot, panel, PUBLISHED)
    view = panel.views.published
    for row in view.table.rows:
        listed = view._steps[row.key].row
        assert row.cells[-1].text == ("yes" if fitted_to(listed) else "no")
    assert len(view.table.rows) == sum(spec_of(row) is not None for row in published())


def test_the_cards_that_were_late_are_planned_by_one_click_and_join_the_table(qtbot, panel, state, sent):
    found = report()
    done, late = found.fits[:2], found.fits[2:]
    planned(panel, state, replace(found, fits=done, late=tuple(fit.gpu for fit in late)), target="mlp")
    assert panel.rest_button.text() == f"Check the other {len(late)} cards"
    qtbot.mouseClick(panel.rest_button, Qt.MouseButton.LeftButton)
    (command,) = sent
    assert (command.target, command.spec) == ("mlp", replace(found.spec, gpus=tuple(fit.gpu for fit in late)))
    last = late[-1].gpu
    planned(panel, state, replace(found, spec=command.spec, fits=late[:-1], late=(last,)), target="mlp", request=8)
    assert len(panel.table.rows) == len(found.fits) - 1
    assert panel.rest_button.text() == "Check the other 1 card"
    planned(
        panel, state, replace(found, spec=replace(command.spec, gpus=(last,)), fits=late[-1:]), target="mlp", request=9
    )
    panel.refresh()
    assert sorted(texts(panel, 0)) == sorted(fit.gpu for fit in found.fits)
    assert panel.rest_button.isHidden()
