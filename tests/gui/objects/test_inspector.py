from __future__ import annotations

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import (
    CPU,
    CUDA,
    ENGINE,
    MIB,
    VGPU,
    allocator,
    mlp,
    model,
    module_row,
    sample,
    show,
    state_with,
    tensor,
    tensor_row,
)
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.experiments.records import Ask
from devexplorer.core.records import AddVirtual, Answer, Check, Combine, Fact, JobEnded, JobStarted, Offer, Undo
from devexplorer.core.session.state import State
from devexplorer.gui.objects.inspector import InspectorPanel, device_facts, selection_facts

LEFT = Qt.MouseButton.LeftButton


def panel_for(qtbot: QtBot, state: State) -> InspectorPanel:
    return hosted(qtbot, lambda _: InspectorPanel(state), 328, 520)


def facts_of(state: State, *targets: str) -> dict[str, str]:
    return {fact.label: fact.value for fact in selection_facts(state, targets)}


def test_an_answer_is_shown_with_words_facts_and_code(qtbot: QtBot):
    state = state_with(CPU, CUDA)
    show(state, mlp())
    panel = panel_for(qtbot, state)
    code = 'model = model.to("cuda:0")'
    state.apply(Answer(title="mlp moved", words="In place.", facts=(Fact("was on", "cpu"),), code=code, subject="mlp"))
    panel.refresh()
    assert (panel.title.text(), panel.words.text(), panel.code.toPlainText()) == ("mlp moved", "In place.", code)
    assert panel.facts.facts == (Fact("was on", "cpu"),)
    assert panel.code.isVisible()


def test_a_failure_has_a_cross_and_not_only_a_colour(qtbot: QtBot):
    state = state_with(CPU)
    panel = panel_for(qtbot, state)
    state.apply(Answer(title="x stayed", words="No room.", failed=True))
    panel.refresh()
    assert panel.title.property("words") == "error"
    assert panel.sign.isVisible()
    state.apply(Answer(title="x moved", words="Now it fits."))
    panel.refresh()
    assert panel.title.property("words") == ""
    assert not panel.sign.isVisible()


def test_each_offer_is_a_button_that_says_which_was_taken(qtbot: QtBot):
    state = state_with(CPU)
    panel = panel_for(qtbot, state)
    offers = (Offer("Add two & go", AddVirtual(spec="2x Tesla T4")), Offer("Undo", Undo()))
    state.apply(Answer(title="t", words="w", offers=offers))
    panel.refresh()
    assert [button.text() for button in panel.offers.buttons] == ["Add two && go", "Undo"]
    with qtbot.waitSignal(panel.command_requested) as chosen:
        qtbot.mouseClick(panel.offers.buttons[1], LEFT)
    assert chosen.args == [offers[1].command]
    state.apply(Answer(title="t", words="w"))
    panel.refresh()
    assert panel.offers.buttons == []


def test_the_facts_come_first_and_what_happened_is_one_line_until_its_details_are_wanted(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    panel.set_selection(("mlp:hidden.weight",))
    state.apply(Answer(title="mlp is on cpu", words="w", facts=(Fact("f", "v"),), code="x\n" * 60, subject="mlp"))
    panel.refresh()
    assert panel.subtitle == "hidden.weight of mlp"
    assert panel.placement.isVisible()
    QApplication.processEvents()
    assert panel.placement.geometry().bottom() < panel.title.geometry().top()
    folded = (panel.words, panel.facts, panel.code)
    assert panel.title.isVisible()
    assert not any(part.isVisible() for part in folded)
    qtbot.mouseClick(panel.details, LEFT)
    assert all(part.isVisible() for part in folded)
    state.apply(Answer(title="mlp is on cpu again", words="w", code="y"))
    panel.refresh()
    assert panel.words.isVisible(), "who wants the details gets those of the next one too"
    qtbot.mouseClick(panel.details, LEFT)
    assert not panel.words.isVisible()
    panel.set_selection(())
    assert panel.words.isVisible(), "there is nothing else to show"


@pytest.mark.parametrize(
    ("subject", "title", "said"),
    [
        ("mlp", "mlp is now on cpu", "mlp is now on cpu"),
        ("mlp", "moved to cpu", "mlp: moved to cpu"),
        ("mlp", "The values of mlp:0.weight", "The values of mlp:0.weight"),
        ("x", "moved to cpu", "moved to cpu"),
        (None, "The engine was restarted", "The engine was restarted"),
    ],
)
def test_what_happened_to_something_else_is_named_in_its_line(qtbot: QtBot, subject: str | None, title: str, said: str):
    state = state_with(CPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    panel.set_selection(("x",))
    state.apply(Answer(title=title, words="w", subject=subject))
    panel.refresh()
    assert (panel.subtitle, panel.title.text()) == ("x", said)
    assert panel.placement.facts == selection_facts(state, ("x",))


def test_a_refusal_is_in_sight_with_its_ways_out_until_something_else_is_done(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    panel.resize(300, 220)
    panel.set_selection(("x",))
    refused = Answer(title="x stayed", words="No room.", offers=(Offer("Undo", Undo()),), failed=True)
    state.apply(refused)
    panel.refresh()
    [way_out] = panel.offers.buttons
    viewport = panel.scroll_area.viewport()

    def in_sight(part: QWidget) -> bool:
        return viewport.rect().contains(part.rect().translated(part.mapTo(viewport, QPoint())))

    qtbot.waitUntil(lambda: in_sight(way_out) and in_sight(panel.title) and not in_sight(panel.placement))
    assert panel.words.isVisible()
    panel.set_selection(("mlp",))
    assert panel.answer == refused, "another selection does not replace it"
    assert panel.title.isVisible()
    with qtbot.waitSignal(panel.command_requested) as asked:
        qtbot.mouseClick(way_out, LEFT)
    assert asked.args == [Undo()]


def test_what_a_check_found_is_one_line_that_leads_to_the_doctor(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp())
    panel = panel_for(qtbot, state)
    state.apply(JobStarted(request=7, title="check", time_unix_s=1.0, command=Check(target="mlp", device="cpu")))
    state.apply(Answer(request=7, title="mlp: 2 problems", words="Long.", code="code", subject="mlp"))
    panel.refresh()
    for _ in range(2):
        assert panel.title.text() == "mlp: 2 problems"
        assert not any(part.isVisible() for part in (panel.words, panel.code, panel.details))
        with qtbot.waitSignal(panel.doctor_requested) as asked:
            qtbot.mouseClick(panel.doctor, LEFT)
        assert asked.args == ["mlp"]
        state.apply(JobEnded(request=7, ok=True, time_unix_s=2.0))
        panel.refresh()


def test_the_answer_to_a_question_is_unfolded(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp())
    panel = panel_for(qtbot, state)
    panel.set_selection(("mlp",))
    question = Ask(target="mlp", question="is_leaf")
    state.apply(JobStarted(request=8, title="asking", time_unix_s=1.0, command=question))
    state.apply(Answer(request=8, title="It is", words="Because it is.", subject="mlp"))
    panel.refresh()
    assert panel.words.isVisible()


def test_a_device_is_shown_in_place_of_the_selection_until_objects_are_selected_again(qtbot: QtBot):
    state = state_with(CPU, CUDA, VGPU)
    show(state, tensor("x", "vgpu:0"), tensor("y", "cpu"))
    allocator(state, "vgpu:0", workspace=MIB, allocated=MIB, reserved=2 * MIB, context=400 * MIB)
    panel = panel_for(qtbot, state)
    panel.set_selection(("x",))
    panel.set_device("vgpu:0")
    assert panel.subtitle == "vgpu:0, simulated"
    known = {fact.label: fact.value for fact in panel.placement.facts}
    assert known["used by"] == (
        "400.00 MiB CUDA context and libraries, 1.00 MiB tensor x, 1.00 MiB cached by the allocator"
    )
    assert known["stands for"].startswith("cuda:0")
    sample(state, "vgpu:0", MIB, utilization_percent=12.0)
    panel.refresh_texts()
    assert Fact("utilization", "12 % (simulated)") in panel.placement.facts
    panel.show_selection()
    assert panel.subtitle == "x"
    assert panel.placement.facts == selection_facts(state, ("x",))
    panel.set_device("cuda:0")
    sample(state, "cuda:0", MIB, temperature_c=61.0, sm_clock_mhz=1410, throttle_reasons=("power cap",))
    panel.refresh_texts()
    known = {fact.label: fact.value for fact in panel.placement.facts}
    assert (known["temperature"], known["SM clock"], known["throttled by"]) == ("61 °C", "1,410 MHz", "power cap")
    sample(state, "cuda:0", MIB, throttle_reasons=("GPU idle",))
    panel.refresh_texts()
    assert "throttled by" not in {fact.label for fact in panel.placement.facts}, "an idle card is held back by nothing"
    state.set_catalog(Catalog((CPU,)))
    panel.refresh()
    assert panel.subtitle == "x", "the device is gone"


def test_memory_that_objects_share_is_not_split_among_them(qtbot: QtBot):
    state = state_with(VGPU)
    show(state, tensor("x", "vgpu:0", 3), tensor("view", "vgpu:0", 2))
    allocator(state, "vgpu:0", workspace=3 * MIB, allocated=3 * MIB, reserved=3 * MIB, context=0)
    assert Fact("used by", "3.00 MiB tensors of named objects") in device_facts(state, "vgpu:0")
    allocator(state, "vgpu:0", workspace=7 * MIB, allocated=7 * MIB, reserved=7 * MIB, context=0)
    [split] = [fact.value for fact in device_facts(state, "vgpu:0") if fact.label == "used by"]
    assert split == "3.00 MiB tensor x, 2.00 MiB tensor view, 2.00 MiB other objects and optimizer state"


def test_a_model_is_summed_up_with_separators_per_device(qtbot: QtBot):
    state = state_with(CPU, CUDA)
    rows = (
        module_row("", 0, "M", ("cpu", "cuda:0")),
        tensor_row("a", 1, "cpu", 4),
        tensor_row("b", 1, "cpu", 4, tied_to="a"),
        tensor_row("c", 1, "cuda:0", 2, requires_grad=False),
        tensor_row("mean", 1, "cuda:0", 1, kind="buffer"),
        msgspec.structs.replace(module_row("heads[0]", 1, "Head", ("cpu",)), registered=False),
        tensor_row("heads[0].x", 2, "cpu", 8, kind="tensor", registered=False),
    )
    show(state, model("m", *rows))
    facts = facts_of(state, "m")
    assert facts == {
        "parameters": "1,572,864 in 2 tensors",
        "trainable": "1,048,576",
        "buffers": "1, 1.00 MiB",
        "on cpu": "4.00 MiB, 1 tensor",
        "on cuda:0": "3.00 MiB, 2 tensors",
        "dtype": "float32",
        "tied": "1",
        "not registered": "1",
        "mode": "training",
    }


def test_a_part_and_several_objects_are_summed_up_too():
    state = state_with(CPU, VGPU)
    show(state, mlp(), tensor("x", "vgpu:0", 3))
    assert facts_of(state, "mlp:hidden")["on cpu"] == "3.00 MiB, all"
    facts = facts_of(state, "mlp:hidden", "x", "gone")
    assert facts["selected"] == "2 objects"
    assert facts["on vgpu:0"] == "3.00 MiB, 1 tensor"


def test_one_tensor_shows_everything_about_it():
    state = state_with(CPU)
    show(state, tensor("y", is_leaf=False, grad_fn="AddBackward0", storage=0x7F00, identity=140_000))
    facts = facts_of(state, "y")
    assert facts["shape"] == "1×256×1024, 262,144 elements"
    assert facts["bytes"] == "1.00 MiB (1,048,576)"
    assert facts["leaf"].startswith("no")
    assert facts["grad_fn"] == "AddBackward0"
    assert facts["storage"] == "0x7f00"
    assert facts["id()"] == "140000"


def test_where_a_model_is_from_and_what_was_done_with_it_is_said_of_the_whole_model():
    state = state_with(CPU)
    rows = (
        module_row("", 0, "M", ("cpu",)),
        module_row("a", 1, "Linear", ("cpu",)),
        tensor_row("a.w", 2),
        tensor_row("a.w.exp_avg", 3, kind="state", mib=2),
    )
    made = msgspec.structs.replace(
        model("m", *rows),
        source="transformers:gpt2",
        optimizer="Adam, lr 0.001",
        hops=True,
        dispatched="accelerate placed its parts.",
    )
    show(state, made)
    facts = facts_of(state, "m")
    assert list(facts)[:4] == ["made from", "optimizer", "hops", "dispatched"]
    assert (facts["made from"], facts["optimizer"], facts["dispatched"]) == (
        "transformers:gpt2", "Adam, lr 0.001", "accelerate placed its parts.",
    )  # fmt: skip
    assert facts["optimizer state"] == "1, 2.00 MiB"
    assert "made from" not in facts_of(state, "m:a")


def big(device: str = "cpu"):
    rows = [module_row("", 0, "Big", (device,), 5_000)]
    for layer in range(1_000):
        rows.append(module_row(f"layers.{layer}", 1, "Linear", (device,), 5))
        rows += [tensor_row(f"layers.{layer}.{part}", 2, device) for part in "abcde"]
    return model("big", *rows)


def test_a_large_model_is_summed_up_when_its_rows_have_been_read_and_keeps_what_it_says_until_then(qtbot: QtBot):
    state = state_with(CPU, VGPU)
    show(state, big())
    panel = panel_for(qtbot, state)
    panel.set_selection(("big",))
    qtbot.waitUntil(lambda: Fact("on cpu", "4.88 GiB, all") in panel.placement.facts)
    show(state, big("vgpu:0"))
    panel.refresh()
    assert Fact("on cpu", "4.88 GiB, all") in panel.placement.facts
    qtbot.waitUntil(lambda: Fact("on vgpu:0", "4.88 GiB, all") in panel.placement.facts)


def test_an_answer_alone_does_not_sum_up_the_selection_again(qtbot: QtBot, monkeypatch):
    state = state_with(CPU)
    show(state, mlp())
    panel = panel_for(qtbot, state)
    panel.set_selection(("mlp",))
    asked = []
    monkeypatch.setattr("devexplorer.gui.objects.inspector.selection_facts", lambda *_: asked.append("sums") or ())
    state.apply(Answer(title="t", words="w"))
    panel.refresh()
    assert asked == []
    show(state, mlp())
    panel.refresh()
    assert asked == ["sums"]


def test_two_selected_tensors_are_offered_to_be_added(qtbot: QtBot):
    state = state_with(CPU, VGPU)
    state.apply(ENGINE)
    show(state, tensor("x"))
    show(state, tensor("x2", "vgpu:0"))
    panel = panel_for(qtbot, state)
    panel.set_selection(("x2",))
    assert [button.text() for button in panel.ways.buttons] == ["To NumPy"]
    panel.set_selection(("x", "x2"))
    (add,) = panel.ways.buttons
    assert add.text() == "Add x + x2"
    with qtbot.waitSignal(panel.command_requested) as asked:
        qtbot.mouseClick(add, LEFT)
    assert asked.args == [Combine(left="x", right="x2")]
    show(state, mlp())
    panel.set_selection(("x", "mlp"))
    assert panel.ways.buttons == []
