"""A model that was opened from the user's code is built again from its file, with what fits of the former one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from places import Place, place_of
from torch import nn

from devexplorer.core.commands.refusals import with_rebuilding
from devexplorer.core.engine.engine import SnapshotDiffer
from devexplorer.core.files.records import OpenModel, RunModelCode
from devexplorer.core.parameters.records import MakeOptimizer, SetTraining, TrainStep
from devexplorer.core.records import Answer, BuildModel, Check, Forward, Move, Steps, Undo

pytestmark = pytest.mark.usefixtures("warm_processes")

NET = """import torch
from torch import nn
from parts import SIZE, Last


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer = nn.Linear(width, SIZE)
        self.layers = [nn.Linear(SIZE, SIZE)]
        self.scale = torch.ones(SIZE)
        self.last = Last()

    def forward(self, x):
        return self.last(self.layer(x)) * self.scale
"""
PARTS = """from torch import nn

SIZE = 4


class Last(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
"""
FIXED = (
    NET.replace("[nn.Linear(SIZE, SIZE)]", "nn.ModuleList([nn.Linear(SIZE, SIZE)])")
    .replace("self.scale = torch.ones(SIZE)", 'self.register_buffer("scale", torch.ones(2))')
    .replace("self.last = Last()", "self.last = Last()\n        self.extra = nn.Linear(2, 2)")
)


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "parts.py").write_text(PARTS)
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


def opened(place: Place, file: Path) -> None:
    place.do(OpenModel(source=f"{file}:Net?width=8", folder=str(file.parent), inputs="2x8", seed=3))


def write(file: Path, text: str) -> None:
    """Another text, and certainly another time."""
    file.write_text(text)
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))


def test_it_has_the_new_code_and_what_fits_of_the_former_model(place: Place, file: Path) -> None:
    opened(place, file)
    place.do(Move(targets=("net",), device="vgpu:0", dtype="float64"))
    place.do(SetTraining(target="net", on=False))
    former = place.workspace.get("net")
    assert isinstance(former, nn.Module)
    former.scale = torch.full((4,), 3.0)
    weight, hidden = former.layer.weight, former.layers[0].weight
    values = {name: tensor.detach().cpu() for name, tensor in former.state_dict().items()}
    assert place.snapshot("net").outdated == ()
    write(file, FIXED)
    assert place.snapshot("net").outdated == (str(file),)

    result = place.do(RunModelCode(target="net", again=True))
    model = place.workspace.get("net")
    assert isinstance(model, nn.Module)
    assert model is not former
    assert result.answer.title == "net was rebuilt from net.py"
    assert place.snapshot("net").outdated == ()
    assert model.layer.weight is weight
    assert torch.equal(model.layers[0].weight.detach().cpu(), hidden.detach().double()), "it was not registered before"
    assert {(str(one.device), one.dtype) for one in (*model.parameters(), *model.buffers())} == {
        ("vgpu:0", torch.float64)
    }
    assert not any(part.training for part in model.modules())
    assert "3 tensors with initial values: scale, extra.weight and extra.bias." in result.answer.words
    script = {"net": former}
    exec(result.answer.code, script)
    again = script["net"]
    assert type(again).__name__ == "Net"
    assert again is not former
    assert again.layer.weight is weight
    exec(result.answer.code, script)  # in a script, also what was opened first has the code as it is now
    assert again.extra.weight is not script["net"].extra.weight, "the session had its initial values here"
    for one in (again, script["net"]):
        assert one.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(value, one.state_dict()[path]) for path, value in model.state_dict().items())
        assert {(tensor.device, tensor.dtype) for tensor in one.buffers()} == {(weight.device, torch.float64)}
    assert ("values carried over", "6 of 9 tensors") in [(fact.label, fact.value) for fact in result.answer.facts]

    place.do(Undo())
    assert place.workspace.get("net") is former
    assert place.snapshot("net").outdated == (str(file),)
    assert all(torch.equal(tensor.detach().cpu(), values[name]) for name, tensor in former.state_dict().items())
    assert str(hidden.device) == "cpu"


def test_a_configuration_file_counts_as_its_code(place: Place, file: Path) -> None:
    config = file.with_name("config.json")
    config.write_text('{"width": 4}')
    write(file, "from torch import nn\ndef make(cfg): return nn.Linear(cfg['width'], 2)\n")
    place.do(OpenModel(source=f"{file}:make?cfg=@config.json", folder=str(file.parent), name="net"))
    write(config, '{"width": 6}')
    assert place.snapshot("net").outdated == (str(config),)
    place.do(RunModelCode(target="net", again=True))
    model = place.workspace.get("net")
    assert isinstance(model, nn.Linear)
    assert model.in_features == 6
    assert place.snapshot("net").outdated == ()


def test_the_optimizer_stays_while_it_fits(place: Place, file: Path) -> None:
    write(file, NET.replace(" * self.scale", ""))
    opened(place, file)
    place.do(MakeOptimizer(target="net", kind="adam"))
    place.do(TrainStep(target="net"))
    optimizer = place.workspace.extras("net").optimizer
    write(file, NET.replace(" * self.scale", " * 2.0"))
    place.do(RunModelCode(target="net", again=True))
    assert place.workspace.extras("net").optimizer is optimizer
    place.do(TrainStep(target="net"))

    write(file, FIXED)
    answer = place.do(RunModelCode(target="net", again=True)).answer
    assert "Its optimizer (Adam" in answer.words
    assert place.snapshot("net").optimizer is None
    place.do(Undo())
    assert place.workspace.extras("net").optimizer is optimizer
    place.do(TrainStep(target="net"))


def test_a_module_that_it_imports_counts_and_others_do_not(place: Place, file: Path) -> None:
    other = file.with_name("other.py")
    other.write_text("from torch import nn\n\n\ndef small():\n    return nn.Linear(2, 2)\n")
    opened(place, file)
    place.do(OpenModel(source=f"{other}:small", folder=str(file.parent)))
    write(other, other.read_text() + "\n")
    assert place.snapshot("net").outdated == ()
    assert place.snapshot("small").outdated == (str(other),)
    write(file.with_name("parts.py"), PARTS.replace("4, 2", "4, 3"))
    assert place.snapshot("net").outdated == (str(file.with_name("parts.py")),)
    answer = place.do(RunModelCode(target="net", again=True)).answer
    assert "2 tensors with initial values: last.weight and last.bias." in answer.words
    assert place.snapshot("net").outdated == ()


def test_a_run_that_fails_and_a_check_offer_it_while_the_file_is_newer(place: Place, file: Path) -> None:
    opened(place, file)
    run, failed = Forward(target="net"), Answer(title="net did not run", words="It stopped.", failed=True)
    assert with_rebuilding(place.workspace, failed, run) == failed
    write(file, FIXED)
    for command in (run, Steps(commands=(Move(targets=("net",), device="cpu"), run))):
        answer = with_rebuilding(place.workspace, failed, command)
        (offer,) = answer.offers
        assert (offer.label, offer.command) == ("Rebuild net from net.py", RunModelCode(target="net", again=True))
        assert answer.words == ("It stopped. net here still uses the previous code: net.py changed after it was built.")
    assert with_rebuilding(place.workspace, failed, Undo()) == failed
    checked = place.do(Check(target="net", device="vgpu:0")).answer
    assert "The files were checked as they are now." in checked.words
    assert checked.offers == answer.offers


def test_what_cannot_be_rebuilt_stays_as_it_is(place: Place, file: Path) -> None:
    place.do(BuildModel(recipe="mlp"))
    refused = place.answer(RunModelCode(target="mlp", again=True))
    assert refused.failed
    assert "was not opened from a Python file or module" in refused.words
    opened(place, file)
    former = place.workspace.get("net")
    write(file, "import torch\n\nraise RuntimeError('not yet')\n")
    refused = place.answer(RunModelCode(target="net", again=True))
    assert refused.failed
    assert "not yet" in refused.words
    assert place.workspace.get("net") is former


def test_what_is_sent_notices_that_a_file_changed(place: Place, file: Path) -> None:
    opened(place, file)
    differ = SnapshotDiffer()
    differ.news(place.snapshot("net"), 1)
    assert differ.knows("net", place.workspace.extras("net").outdated)
    write(file, FIXED)
    assert not differ.knows("net", place.workspace.extras("net").outdated)
