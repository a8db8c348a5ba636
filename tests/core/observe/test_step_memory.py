"""What one step of a running script has in the memory, and where its model is: asked from a window, answered by the
script's own thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.observe import observer, whereabouts
from devexplorer.core.observe.live_memory import LiveMemory
from devexplorer.core.observe.looker import by_part, parts_on
from devexplorer.core.observe.observer import Awaited, Observation
from devexplorer.core.observe.phases import Crossing, StepTimes
from devexplorer.core.observe.records import ObserveSettings, ParameterPlace, ScriptPlacement, StepMemory
from devexplorer.core.observe.step_memory import cards_in_use, step_memory
from devexplorer.core.observe.weights import ModelWeight
from devexplorer.core.observe.whereabouts import crossing_findings, placement_answer
from devexplorer.core.records import AllocatorSample, Answer
from devexplorer.core.virtual.device.machine import VirtualMachine


class Net(nn.Module):
    """Its first layer has no input that needs a gradient, and no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(64, 128, bias=False)
        self.block = nn.Sequential(nn.Linear(128, 256), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.block(torch.tanh(self.stem(x)))
        return result


@pytest.fixture
def observation() -> Iterator[Observation]:
    made = observer.start(ObserveSettings(script="train.py"))
    yield made
    made.finish()


def train(model: nn.Module, steps: int, device: str = "cpu") -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        model(torch.ones(8, 64).to(device)).sum().backward()
        optimizer.step()


def facts(answer: Answer) -> dict[str, str]:
    return {fact.label: fact.value for fact in answer.facts}


def test_activations_are_named_by_the_layer_that_made_them() -> None:
    model = Net()
    loss = model(torch.ones(1024, 64)).sum()
    answer = step_memory()
    lines = answer.words.splitlines()
    assert lines[0] == "Saved for backward on cpu, by layer and operation:"
    assert "• 1.00 MiB  block.0: Sigmoid" in lines
    assert "• 512.00 KiB  stem: Tanh" in lines
    assert "parameters, cpu" in facts(answer)
    del loss
    assert "Tanh" not in step_memory().words


def test_layers_of_two_models_and_what_is_too_small_for_a_line() -> None:
    """One operation in place, and many of one size."""
    makes, judges = nn.Sequential(*(nn.Linear(32, 32) for _ in range(24)), nn.Linear(32, 64)), Net()
    loss = judges(nn.functional.leaky_relu(makes(torch.ones(1024, 32)), inplace=True)).sum()
    lines = step_memory().words.splitlines()
    assert "• 1.00 MiB  Net.block.0: Sigmoid" in lines
    assert "• 256.00 KiB  Sequential.24: LeakyRelu" in lines
    assert len(lines) == 22
    assert lines[-1].endswith("  in smaller parts")
    del loss


def test_it_is_looked_at_once_when_backward_begins(observation: Observation) -> None:
    found: list[Answer] = []
    others = facts(step_memory()).get("gradients, cpu")  # what other tests hold
    observation.asked.append(Awaited("backward", lambda: found.append(step_memory())))
    model = Net()
    assert not found
    train(model, 3)
    assert len(found) == 1
    assert "block.0: Sigmoid" in found[0].words
    assert facts(found[0]).get("gradients, cpu") == others, "none of its own yet"
    observation.fold.stops.clear()
    observation.asked.append(Awaited("backward", lambda: None))
    observation.answer("backward")
    assert len(observation.fold.stops) == 1, "what is asked belongs to no step"
    observation.asked.append(Awaited("backward", lambda: 1 // 0))
    train(model, 1)
    assert observation.problems == ["ZeroDivisionError: integer division or modulo by zero"]


def test_virtual_gpus_are_looked_at_by_their_allocators(virtual: VirtualMachine) -> None:
    model = Net().to("vgpu:0")
    loss = model(torch.ones(1024, 64).to("vgpu:0")).sum()
    answer = step_memory()
    assert "(simulated)" in answer.words.splitlines()[0]
    assert any(name.startswith("allocated, ") for name in facts(answer))
    del loss


def test_a_reading_says_what_the_models_have_by_part(observation: Observation) -> None:
    model = Net()
    train(model, 2)
    parts = {"parameters and buffers": 164_864, "optimizer state": 164_864, "gradients": 164_864}
    assert parts_on("cpu", observation) == parts
    sample = AllocatorSample(device="cpu", time_unix_s=0.0, allocated_bytes=400_000, reserved_bytes=1 << 20)
    told = by_part(sample, observation)
    known = [(use.name, use.bytes) for use in told.objects]
    assert known == list(parts.items())[:2], "gradients that are gone since then are not made up of other tensors"
    assert told.workspace_bytes == 2 * 164_864
    wrappers = [nn.Sequential(model), nn.Sequential(model)]  # as DataParallel for training, and again for evaluation
    for wrapper in wrappers:
        wrapper(torch.ones(8, 64))
    observation.weigh()
    assert parts_on("cpu", observation)["parameters and buffers"] == 164_864
    del model, wrapper, wrappers
    assert by_part(sample, observation).objects == ()


def test_what_summing_up_and_weighing_take_belongs_to_no_step(
    observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out: list[tuple[int, int]] = []
    monkeypatch.setattr(observation.fold, "leave_out", lambda *times: left_out.append(times) or 0)
    train(Net(), 8)
    assert len(left_out) == 3, "weighed at the first two steps, summed up after the sixth"
    assert all(begun < ended for begun, ended in left_out)


def test_where_the_models_are(observation: Observation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert placement_answer(observation).words.startswith("• No model has been seen in a whole step yet.")
    model = Net()
    train(model, 3)
    nn.MSELoss()(model(torch.ones(8, 64)), torch.ones(8, 256))
    answer = placement_answer(observation)
    assert all(facts(answer).values()), "a loss has nothing to be placed"
    assert facts(answer)["Net"] == "161.00 KiB on cpu"
    assert facts(answer)["Net, dtypes"] == "float32 161.00 KiB"
    assert "• No copy between devices, and no value read back from one, at a step." in answer.words
    assert "cannot be seen from outside" in answer.words
    code, weight = test_where_the_models_are.__code__, ModelWeight()
    weight.places = [
        place("a", "cuda:0", gradient_device="cuda:0", optimizer_device="cpu"),
        place("b", "cpu", gradient_device="cpu"),
    ]
    times = StepTimes()
    times.steps = 10
    times.crossings.update(
        {
            Crossing(".to()", True, "device", False, False, code, 0): 20,
            Crossing(".cpu()", True, "host", True, True, code, 0): 10,
            Crossing(".item()", False, "host", False, False, code, 0): 1,
        }
    )
    monkeypatch.setattr(whereabouts, "weights_of", lambda _: [("Net", weight)])
    monkeypatch.setattr(observation.fold, "counts", lambda: (times, None))
    line = code.co_firstlineno
    assert f"• .to() copies to the device, in the first steps: test_step_memory.py, line {line}" in (
        placement_answer(observation).words.splitlines()
    )
    observation.fold.steps = times.steps
    assert placement_answer(observation).words.splitlines()[:4] == [
        "• The parameters of Net are on several devices: 1 on cuda:0, 1 on cpu.",
        "• Net has optimizer state on another device than the parameter, of 1 parameter: a is on cuda:0, its optimizer"
        " state on cpu.",
        f"• .to() copies to the device, 2 times a step: test_step_memory.py, line {line}",
        f"• .cpu() copies to the CPU inside the model, once a step: test_step_memory.py, line {line}",
    ]


def test_what_a_package_copies_is_said_at_the_line_of_the_script_that_calls_it(
    virtual: VirtualMachine, observation: Observation
) -> None:
    package: dict[str, Any] = {}
    sent = "def send(tensor):\n    return tensor.to('vgpu:0')\n\ndef read(tensor):\n    return tensor.item()\n"
    exec(compile(sent, "/env/lib/site-packages/sends/ops.py", "exec"), package)
    model = Net().to("vgpu:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        loss = model(package["send"](torch.ones(8, 64))).sum()
        loss.backward()
        package["read"](loss)
        optimizer.step()
    observation.fold.finish()
    line = test_what_a_package_copies_is_said_at_the_line_of_the_script_that_calls_it.__code__.co_firstlineno + 9
    assert placement_answer(observation).words.splitlines()[:2] == [
        f"• .to() copies to the device, once a step: test_step_memory.py, line {line} (sends/ops.py, line 2)",
        f"• .item() reads a value back, once a step: test_step_memory.py, line {line + 2} (sends/ops.py, line 5)",
    ]
    found = {finding.line: str(finding.message) for finding in crossing_findings(observation)}
    assert found[line] == ".to() copies to the device, once a step, at sends/ops.py, line 2."
    assert found[line + 2] == ".item() reads a value back, once a step, at sends/ops.py, line 5."


def place(name: str, device: str, **more: Any) -> ParameterPlace:
    return ParameterPlace(name=name, device=device, dtype="float32", bytes=4, **more)


@pytest.mark.parametrize("command", [StepMemory(), ScriptPlacement()], ids=lambda command: type(command).__name__)
def test_an_engine_has_no_steps(command: Any) -> None:
    with LocalEngine(None) as engine:
        (answer,) = [event for event in engine.run(command) if isinstance(event, Answer)]
    assert answer.failed
    assert "Only a running script has steps" in answer.words


class Wrapping(torch.optim.Optimizer):
    """As accelerate and Lightning wrap one."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_an_optimizer_in_a_wrapper_counts_once() -> None:
    model = Net()
    inner = torch.optim.Adam(model.parameters())
    outer = Wrapping(inner)
    model(torch.ones(8, 64)).sum().backward()
    inner.step()
    (card,) = cards_in_use()
    live = LiveMemory(card, 0, 10.0)
    try:
        own = [one for one in live.optimizers if one.param_groups is outer.param_groups]
        assert own == [inner]
    finally:
        live.forget()
