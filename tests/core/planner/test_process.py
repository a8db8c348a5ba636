"""The planner in its subprocess, and as a command of the engine: answers, one-line errors, limits, cancelling."""

import contextlib
import io
import os

import pytest
import torch
from msgspec.structs import replace
from places import place_of

from devexplorer.core.base import BadInput, Cancelled, ProgressMonitor
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.doctor.ask import diagnosed
from devexplorer.core.files.records import OpenModel
from devexplorer.core.planner.commands import plan_fit as planner
from devexplorer.core.planner.records import FitPlanned, FitSpec, PlanFit
from devexplorer.core.planner.worker.ask import planned
from devexplorer.core.records import BuildModel, DoctorRequest

pytestmark = pytest.mark.usefixtures("warm_processes")

QUICK = FitSpec(source="mlp", gpus=("Tesla T4",), search=False, options=False)


@pytest.fixture
def workspace():
    with place_of("vgpu") as place:
        yield place.workspace


def write(folder, text):
    (folder / "net.py").write_text(text)
    return FitSpec(
        source="net.py:Net", folder=str(folder), inputs="2x8", gpus=("Tesla T4",), search=False, options=False
    )


@pytest.mark.usefixtures("cold_processes")
def test_an_answer_from_a_subprocess():
    told = []
    report = planned(QUICK, ProgressMonitor(report=lambda done, text, part="": told.append((done, text))))
    assert report.spec == QUICK
    assert report.fits[0].fits
    assert report.parameters == 7946
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert any("mlp" in text for _, text in told)


@pytest.mark.usefixtures("cold_processes")
def test_another_backend_in_the_place_of_virtual_gpus_does_not_hinder_it(tmp_path, monkeypatch):
    """torch loads it as it is imported, by its entry point, into the one place that there is for such devices."""
    (tmp_path / "npu_for_torch.py").write_text(
        "import torch\ndef load():\n    torch.utils.rename_privateuse1_backend('npu')\n"
    )
    facts = tmp_path / "npu_for_torch-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: npu-for-torch\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[torch.backends]\nnpu = npu_for_torch:load\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert planned(QUICK).fits[0].fits
    assert diagnosed(DoctorRequest(source="mlp", device="vgpu:0")).clean


def net(folder, init):
    return write(
        folder,
        f"import os, time\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        {init}\n"
        "    def forward(self, alpha, beta): return alpha['x'] + beta\n",
    )


@pytest.mark.parametrize(
    ("init", "given", "seconds", "words"),
    [
        ("import nowhere", "2x8", 60.0, r"ModuleNotFoundError: No module named 'nowhere' \(net.py, line 5\)"),
        ("time.sleep(1000)", "2x8", 4.0, r"'net\.py:Net' was not ready after 4 s and was ended.*--timeout 600"),
        ("os._exit(3)", "2x8", 60.0, "ended its process itself with exit code 3"),
        ("super().__init__()", "", 60.0, "its forward takes alpha, beta"),
    ],
)
def test_what_gives_no_answer_is_one_line(tmp_path, init, given, seconds, words):
    with pytest.raises(BadInput, match=words):
        planned(replace(net(tmp_path, init), inputs=given), seconds=seconds)


def test_cards_that_were_done_in_time_are_kept_and_the_others_named(workspace, tmp_path):
    """The model hangs on a second card, which only the second of three requests has."""
    text = (
        "import time\nfrom torch import nn\n"
        "class Part(nn.Sequential):\n"
        "    def __init__(self): super().__init__(nn.Linear(8, 8), nn.ReLU())\n"
        "    def forward(self, x):\n"
        "        if x.device.index == 1: time.sleep(1000)\n"
        "        return super().forward(x)\n"
        "class Net(nn.Sequential):\n    def __init__(self): super().__init__(*(Part() for _ in range(4)))\n"
    )
    spec = replace(write(tmp_path, text), gpus=("Tesla T4", "2x Tesla T4", "NVIDIA A10"))
    report = planned(spec, seconds=12.0)
    assert [fit.gpu for fit in report.fits] == ["Tesla T4"]
    assert report.fits[0].fits
    assert report.late == ("2x Tesla T4", "NVIDIA A10")
    (offer,) = planner.answer_of(report, "").offers
    assert offer.command.spec.gpus == report.late


def test_cancelling():
    with pytest.raises(Cancelled):
        planned(QUICK, ProgressMonitor(cancelled=lambda: True))


def test_a_model_of_the_workspace_is_planned_for_by_its_source(workspace):
    dispatch(workspace, BuildModel(recipe="lenet", name="mine"))
    outcome = dispatch(workspace, PlanFit(spec=QUICK, target="mine"))
    (event,) = outcome.events
    assert isinstance(event, FitPlanned)
    assert event.target == "mine"
    assert (event.report.spec.source, event.report.parameters) == ("lenet", 61706)
    assert outcome.answer.title.startswith("mine fits Tesla T4")
    assert outcome.answer.subject == "mine"
    assert "simulated" in outcome.answer.words
    assert "devexplorer fit lenet --gpu 'Tesla T4'" in outcome.answer.code
    assert not outcome.changed
    workspace.get("mine").to(torch.bfloat16)
    assert dispatch(workspace, PlanFit(spec=QUICK, target="mine")).events[0].report.spec.dtype == "bfloat16"


def _freeze(model):
    model[0].requires_grad_(False)


def _tie(model):
    model[1].weight = model[0].weight


def _untie(model):
    model[3].weight = torch.nn.Parameter(model[2].weight.detach().clone())


@pytest.mark.parametrize(("change", "parameters", "trained"), [(_freeze, 3, 2), (_tie, 2, 2), (_untie, 4, 4)])
def test_a_model_is_planned_for_as_it_is_in_the_workspace(workspace, tmp_path, change, parameters, trained):
    """Of four layers that the source makes two are tied: one frozen, two more tied, none tied."""
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(4)))\n"
        "    model[3].weight = model[2].weight\n"
        "    return model\n"
    )
    dispatch(workspace, OpenModel(source="net.py:make", folder=str(tmp_path), name="net", inputs="2x256"))
    spec = FitSpec(source="", gpus=("Tesla T4",), train=True, search=False, options=False)
    before = dispatch(workspace, PlanFit(spec=spec, target="net")).events[0].report
    assert before.changed_tensors == 0
    change(workspace.get("net"))
    outcome = dispatch(workspace, PlanFit(spec=spec, target="net"))
    (event,) = outcome.events
    one, two = before.fits[0].rest, event.report.fits[0].rest
    assert (3 * two.parameters, 3 * two.gradients) == (parameters * one.parameters, trained * one.gradients)
    assert two.optimizer == pytest.approx(trained * one.optimizer / 3, abs=4096)
    assert event.report.changed_tensors == 1
    assert any("as it is in the workspace, with 1 tensor unlike" in each for each in event.report.assumptions)
    assert "changed in the workspace: 1 tensor" in outcome.answer.code
    assert len(outcome.answer.code) < 1000, "not a list of tensors"


def test_what_has_no_source_is_refused(workspace):
    workspace.add("stranger", torch.nn.Linear(2, 2))
    workspace.add("numbers", torch.ones(2))
    with pytest.raises(BadInput, match="'stranger' was not created here"):
        dispatch(workspace, PlanFit(spec=QUICK, target="stranger"))
    with pytest.raises(BadInput, match="'numbers' is a tensor"):
        dispatch(workspace, PlanFit(spec=QUICK, target="numbers"))


def test_the_code_of_an_answer_runs(workspace):
    outcome = dispatch(workspace, PlanFit(spec=QUICK))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(outcome.answer.code, {})
    assert out.getvalue().startswith("Tesla T4 fits")


def test_the_command_line_of_a_request():
    spec = FitSpec(
        source="net.py:Net",
        folder="/some where",
        gpus=("2x Tesla T4",),
        batch=8,
        train=True,
        optimizer="sgd",
        autocast="float16",
    )
    assert (
        planner.command_line(spec)
        == "cd '/some where' && devexplorer fit net.py:Net --gpu '2x Tesla T4' --batch 8 --autocast float16 --train"
        " --optimizer sgd"
    )
