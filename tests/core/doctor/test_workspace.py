"""`Check` in the workspace: the diagnosis of a model, and findings that only the live model shows."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fakes.doctor_models import PLAIN_TENSOR
from msgspec.structs import replace
from places import Place, place_of
from torch import nn

from devexplorer.core.base import NO_PROGRESS, BadInput, DevExplorerError, ProgressMonitor
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.doctor import check as doctor
from devexplorer.core.doctor.examine import examine
from devexplorer.core.files.records import OpenModel
from devexplorer.core.parameters.records import MakeOptimizer, TrainStep
from devexplorer.core.records import (
    Answer,
    Backward,
    BuildModel,
    Check,
    Checked,
    Command,
    Diagnosis,
    DoctorRequest,
    Forward,
    Move,
    NewTensor,
    Undo,
)
from devexplorer.core.split.records import Split
from devexplorer.core.virtual.backend import install

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture(params=["cpu", "vgpu", "cuda"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    with place_of(request.param) as made:
        yield made


@pytest.fixture
def cards() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DoctorRequest]]:
    """The doctor works in this process, which has the virtual GPUs already; the list gets what it was asked."""
    requests: list[DoctorRequest] = []

    def here(request: DoctorRequest, progress: ProgressMonitor = NO_PROGRESS) -> Diagnosis:
        requests.append(request)
        return examine(replace(request, virtual=""), progress.report)

    monkeypatch.setattr(doctor, "diagnosed", here)
    yield requests
    install().reset()  # where there were none, the doctor has made some


def checked(place: Place, command: Check) -> tuple[Answer, Diagnosis]:
    outcome = place.do(command)
    (event,) = outcome.events
    assert isinstance(event, Checked)
    assert event.target == event.diagnosis.target == command.target
    assert not outcome.changed
    return outcome.answer, event.diagnosis


def facts(answer: Answer) -> dict[str, str]:
    return {fact.label: fact.value for fact in answer.facts}


def test_a_clean_model_has_nothing_to_mend(place: Place, asked: list[DoctorRequest]) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    before = place.snapshot("mlp")
    answer, found = checked(place, Check(target="mlp", device=place.first, train=True))
    assert answer.title == "mlp: no problem"
    assert answer.subject == "mlp"
    assert found.clean
    assert (found.device, found.train) == (place.first, True)
    assert "Every tensor is where it should be" in answer.words
    assert ("simulated" in answer.words) == (place.kind == "vgpu")
    assert facts(answer)["errors"] == "none"
    assert facts(answer)["inputs"] == "2x20"
    assert place.snapshot("mlp") == before


def test_a_device_that_is_not_there_is_explained(cards: Place) -> None:
    with place_of("cpu") as place:
        place.do(BuildModel(recipe="mlp"))
        assert place.offers_virtual_gpus(Check(target="mlp", device="vgpu:0"))


def test_problems_are_reported_with_their_lines(place: Place, asked: list[DoctorRequest], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(PLAIN_TENSOR)
    place.do(OpenModel(source="net.py:Net", folder=str(tmp_path), device=place.first))
    device = place.first if place.kind != "cpu" else "cpu"
    answer, found = checked(place, Check(target="net", device=device))
    assert [one.rule for one in found.problems] == ["unregistered-tensor"]
    assert answer.title == "net: 1 error"
    assert "net.py, line 9: self.scale is a plain attribute" in answer.words
    assert facts(answer)["errors"] == "Tensor that is not registered"
    assert asked[-1].source == "net.py:Net"
    assert asked[-1].folder == str(tmp_path)
    assert found.problems[0].patch is not None


def test_its_code_does_the_same(
    place: Place, asked: list[DoctorRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text(PLAIN_TENSOR)
    place.do(OpenModel(source="net.py:Net", folder=str(tmp_path), device=place.first))
    answer, found = checked(place, Check(target="net", device=place.first, inputs="3x8"))
    monkeypatch.setattr(
        "devexplorer.core.doctor.testing.diagnosed", lambda request, seconds: examine(replace(request, virtual=""))
    )
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(answer.code, {})
    assert "1 error" in out.getvalue()
    assert found.problems[0].message in out.getvalue()


def test_the_same_cards_seed_and_dtype_are_asked_for(cards: Place, asked: list[DoctorRequest]) -> None:
    cards.do(BuildModel(recipe="mlp", name="a", device="vgpu:1", seed=7))
    cards.do(Move(targets=("a",), device="vgpu:1", dtype="float16"))
    checked(cards, Check(target="a", device="vgpu:1", inputs="4x20"))
    (request,) = asked
    assert request == DoctorRequest(
        source="mlp",
        device="vgpu:1",
        virtual="Tesla T4, Tesla T4",
        training=True,
        inputs="4x20",
        dtype="float16",
        seed=7,
    )


def test_what_the_user_gave_for_the_forward_is_used_again(
    cards: Place, asked: list[DoctorRequest], tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(PLAIN_TENSOR)
    cards.do(OpenModel(source="net.py:Net", folder=str(tmp_path), inputs="6x8"))
    _, found = checked(cards, Check(target="net", device="vgpu:0"))
    assert found.inputs == "6x8"


def test_what_is_no_model_is_refused(cards: Place) -> None:
    cards.do(NewTensor(name="x", shape=(2,)))
    with pytest.raises(BadInput, match="'x' is a tensor"):
        cards.do(Check(target="x", device="vgpu:0"))
    cards.do(BuildModel(recipe="mlp"))
    with pytest.raises(BadInput, match="is no input"):
        cards.do(Check(target="mlp", device="vgpu:0", inputs="two by four"))
    with pytest.raises(DevExplorerError, match="there is no"):
        cards.do(Check(target="nobody", device="vgpu:0"))


def test_state_of_an_optimizer_that_stayed_behind_is_found(cards: Place, asked: list[DoctorRequest]) -> None:
    cards.do(BuildModel(recipe="mlp"))
    cards.do(MakeOptimizer(target="mlp", kind="adam"))
    cards.do(TrainStep(target="mlp"))
    _, found = checked(cards, Check(target="mlp", device="vgpu:0"))
    assert found.clean, "Adam's step is on the CPU, as everything is"
    optimizer = cards.workspace.extras("mlp").optimizer
    assert optimizer is not None
    model = cards.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    first = next(model.parameters())
    optimizer.state[first]["exp_avg"] = optimizer.state[first]["exp_avg"].to("vgpu:0")
    _, found = checked(cards, Check(target="mlp", device="vgpu:0"))
    assert [one.rule for one in found.problems] == ["optimizer-before-move"]
    assert "exp_avg of 0.weight on vgpu:0, and the parameter is on cpu" in found.problems[0].message
    optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.zeros(1))
    _, found = checked(cards, Check(target="mlp", device="vgpu:0"))
    assert "holds 1 tensor that the model does not have any more" in found.problems[0].message


def test_parts_on_several_devices_need_hops(cards: Place, asked: list[DoctorRequest]) -> None:
    cards.do(BuildModel(recipe="mlp"))
    cards.do(Move(targets=("mlp:0",), device="vgpu:0"))
    _, found = checked(cards, Check(target="mlp", device="vgpu:0"))
    assert [one.rule for one in found.problems] == ["mixed-devices"]
    assert "cpu, vgpu:0" in found.problems[0].message
    cards.do(Split(target="mlp", device_map={"0": "vgpu:0", "1": "vgpu:0", "2": "vgpu:1"}))
    cards.do(Forward(target="mlp"))
    _, found = checked(cards, Check(target="mlp", device="vgpu:0"))
    assert not found.problems
    assert [one.rule for one in found.notes] == ["device-hop"]
    assert found.notes[0].bytes


def test_ties_that_are_gone_are_found(cards: Place, asked: list[DoctorRequest]) -> None:
    cards.do(BuildModel(recipe="tied"))
    _, found = checked(cards, Check(target="tied", device="vgpu:0"))
    assert found.clean
    model = cards.workspace.get("tied")
    assert isinstance(model, nn.Sequential)
    model[4] = copy.deepcopy(model[2])
    _, found = checked(cards, Check(target="tied", device="vgpu:0"))
    assert [(one.rule, one.path) for one in found.problems] == [("tie-lost", "4.weight"), ("tie-lost", "4.bias")]


def test_a_model_that_cannot_be_rebuilt_is_inspected(cards: Place) -> None:
    class Loose(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.scale = torch.ones(2)

    model = Loose()
    cards.workspace.add("loose", model)
    answer, found = checked(cards, Check(target="loose", device="vgpu:0"))
    assert [one.rule for one in found.problems] == ["unregistered-tensor"]
    assert "the code that made this model is unknown" in found.unchecked[0].reason
    assert "nothing of it ran" in answer.words
    assert next(model.parameters()).device.type == "cpu"
    assert cards.allocated("vgpu:0") == 0


def test_a_large_one_is_not_copied(cards: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devexplorer.core.doctor.check.CHEAP_BYTES", 10)
    cards.workspace.add("large", nn.Linear(8, 8))
    with pytest.raises(BadInput, match="too much for a copy to look at, and the code that made this model is unknown"):
        cards.do(Check(target="large", device="vgpu:0"))


def test_a_check_is_no_change_and_tells_which_part_it_runs(cards: Place, asked: list[DoctorRequest]) -> None:
    cards.do(BuildModel(recipe="mlp"))
    undo = cards.workspace.history.state()
    parts: list[str] = []
    monitor = ProgressMonitor(report=lambda done, text, part="": parts.append(part))
    dispatch(cards.workspace, Check(target="mlp", device="vgpu:0"), monitor)
    assert [part for part in parts if part] == 2 * ["mlp:0", "mlp:1", "mlp:2"]  # in both modes
    assert cards.workspace.history.state() == undo
    cards.do(Undo())
    assert cards.workspace.names == ()


def test_the_doctor_of_the_workspace_works_in_a_subprocess(cards: Place) -> None:
    cards.do(BuildModel(recipe="mlp"))
    heard: list[str] = []
    outcome = dispatch(
        cards.workspace,
        Check(target="mlp", device="vgpu:1"),
        ProgressMonitor(report=lambda done, text, part="": heard.append(text)),
    )
    assert outcome.answer.title == "mlp: no problem"
    assert "forward on vgpu:1" in heard
    with pytest.raises(DevExplorerError, match="cancelled"):
        dispatch(cards.workspace, Check(target="mlp", device="vgpu:1"), ProgressMonitor(cancelled=lambda: True))


@pytest.mark.parametrize(
    ("command", "train"),
    [(Forward(target="net"), False), (Backward(target="net"), True), (TrainStep(target="net"), True)],
)
def test_the_check_that_is_offered_after_a_failure_does_what_failed(
    cards: Place, asked: list[DoctorRequest], tmp_path: Path, command: Command, train: bool
) -> None:
    code = PLAIN_TENSOR.replace("* self.scale", "+ (torch.zeros(4) if self.training else 0)")
    (tmp_path / "net.py").write_text(code.replace("        self.scale = torch.ones(4)\n", ""))
    cards.do(OpenModel(source="net.py:Net", folder=str(tmp_path), inputs="2x8", device="vgpu:0"))
    if isinstance(command, TrainStep):
        cards.do(MakeOptimizer(target="net", kind="sgd"))
    answer = cards.answer(command)
    assert answer.failed
    (check,) = [offer.command for offer in answer.offers if isinstance(offer.command, Check)]
    assert check.train == train
    _, found = checked(cards, check)
    assert [item.rule for item in found.problems] == ["default-device"], "the evaluation has no such problem"
    assert "training" in found.modes


CACHE = """
import warnings
import torch
from torch import nn

class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("base", torch.ones(4))
        self.cache = None

    def forward(self, x):
        if self.cache is None:
            self.cache = torch.zeros_like(x) + self.base
        return x + self.cache

class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        with warnings.catch_warnings(action="ignore"):  # it is deprecated
            self.layer = nn.utils.weight_norm(nn.Linear(4, 4))

    def forward(self, x):
        return self.layer(x)
"""


@pytest.mark.usefixtures("asked")
def test_what_a_call_kept_before_a_move_is_found_though_a_new_model_is_right(cards: Place, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(CACHE)
    name = cards.do(OpenModel(source="net.py:Cached", folder=str(tmp_path), inputs="2x4")).changed[0].name
    cards.do(Forward(target=name))
    cards.do(Move(targets=(name,), device="vgpu:0"))
    _, found = checked(cards, Check(target=name, device="vgpu:0", inputs="2x4"))
    assert [(one.rule, one.path, one.severity) for one in found.problems] == [
        ("unregistered-tensor", "cache", "warning")
    ]
    with pytest.raises(DevExplorerError, match="same device"):  # the sample is where its buffer is
        cards.do(Forward(target=name))


def test_a_weight_that_a_hook_computes_is_in_the_way_of_no_move(cards: Place, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(CACHE)
    name = cards.do(OpenModel(source="net.py:Normed", folder=str(tmp_path), inputs="2x4")).changed[0].name
    for device in ("vgpu:0", "cpu"):
        moved = cards.do(Move(targets=(name,), device=device))
        assert "Left behind" not in moved.answer.words
        cards.do(Backward(target=name))
