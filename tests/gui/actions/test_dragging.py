"""The targets of a move for a selection, and its effect, without widgets."""

from __future__ import annotations

from fakes.look_records import CPU, CUDA, ENGINE, mlp, model, module_row, show, state_with, tensor, tensor_row

from devexplorer.core.records import Move
from devexplorer.gui.actions import Controller
from devexplorer.gui.actions.controller import movable, verdicts


def filled():
    state = state_with(CPU, CUDA)
    show(state, mlp(gradients=True), tensor("x"), model("flat", module_row("", 0, "M", ("cpu",)), tensor_row("w", 1)))
    return state


def test_modules_and_tensors_of_the_workspace_are_moved_as_they_are():
    assert movable(filled(), ("mlp:hidden", "x", "mlp:out")) == (("mlp:hidden", "x", "mlp:out"), "")


def test_a_tensor_inside_a_module_moves_with_the_module_that_holds_it():
    moved = movable(filled(), ("mlp:hidden.weight",))
    assert moved.targets == ("mlp:hidden",)
    assert moved.words == "hidden.weight moves with what holds it: hidden of mlp."
    assert movable(filled(), ("flat:w",)) == (("flat",), "w moves with what holds it: flat.")


def test_many_tensors_are_reported_once_and_each_module_moves_once():
    moved = movable(filled(), ("mlp:hidden.weight", "mlp:hidden.bias.grad", "mlp:out", "mlp:out.bias", "x"))
    assert moved.targets == ("mlp:hidden", "mlp:out", "x")
    assert moved.words == "3 of the chosen tensors move with the modules that hold them."


def test_a_card_tells_what_would_really_move():
    state = filled()
    needed = verdicts(state, ("mlp:hidden.bias",), ("cpu", "cuda:0"))
    assert needed["cpu"].words == "already here"
    assert needed == verdicts(state, ("mlp:hidden",), ("cpu", "cuda:0"))


def test_the_controller_moves_the_module_and_says_so():
    state, sent, said = filled(), [], []
    state.apply(ENGINE)
    controller = Controller(
        state, lambda command: sent.append(command) or 1, lambda: ("mlp:out.weight", "x"), said.append
    )
    controller.move("cuda:0")
    assert sent == [Move(targets=("mlp:out", "x"), device="cuda:0")]
    assert said == ["out.weight moves with what holds it: out of mlp."]
    controller.move("cuda:0", ("x",))
    assert len(said) == 1


def test_a_move_that_cannot_be_done_now_says_why_and_sends_nothing():
    state, selected, sent, said = filled(), [], [], []
    controller = Controller(state, lambda command: sent.append(command) or 1, lambda: tuple(selected), said.append)
    controller.move("cuda:0", ("x",))
    assert said.pop() == "The engine is not ready yet.", "dropped on a card"
    state.apply(ENGINE)
    controller.move("cuda:0")
    assert said.pop() == "Select an object in the list first.", "its key"
    only = state_with(CPU)
    show(only, tensor("x"))
    only.apply(ENGINE)
    Controller(only, lambda command: sent.append(command) or 1, lambda: ("x",), said.append).move("cpu")
    assert said.pop().startswith("There is only one device here")
    assert sent == []


def test_rows_are_found_by_target():
    state = filled()
    assert state.row_of("mlp:out.bias").path == "out.bias"
    assert state.row_of("x").kind == "tensor"
    assert state.row_of("mlp:nowhere") is None
    assert state.row_of("gone") is None
