"""The session as Python: a session of many actions, as a script and as a notebook, reproduces its objects in a new
process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
from fakes.scripts import Here, bound_beside, script_gives_the_same

from devexplorer.core.base import BadInput
from devexplorer.core.experiments.records import Ask, Crossover, Replicate, TimeWork
from devexplorer.core.files import records as rec
from devexplorer.core.files.records import OpenWorkspace, RunModelCode, SaveWorkspace
from devexplorer.core.files.script import SessionFiles, marked, notebook, script, write
from devexplorer.core.parameters import records as lab
from devexplorer.core.records import (
    AddVirtual,
    Backward,
    BuildModel,
    Combine,
    Command,
    EditElement,
    EngineLost,
    Forward,
    Move,
    NewTensor,
    Redo,
    Remove,
    SentFrom,
    SetThreads,
    Undo,
)
from devexplorer.core.session.journal import Action, Surroundings
from devexplorer.core.session.poll import PollResult
from devexplorer.core.session.session import Session
from devexplorer.core.split.records import InsertHops, Join, PlanSplit, Split

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture
def here() -> Iterator[Here]:
    made = Here("2x Tesla T4")
    yield made
    made.close()


def commands(folder: Path) -> list[Command]:
    """Every kind of action, at least once."""
    np.save(folder / "array.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    (folder / "mine.py").write_text(
        "from torch import nn\n\n\ndef factory():\n    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))\n"
    )
    return [
        SetThreads(threads=1),
        NewTensor(name="x", fill="rand", shape=(2, 20), seed=3),
        NewTensor(name="y", fill="randn", shape=(2, 20), device="vgpu:0", seed=4, dtype="float64", requires_grad=True),
        NewTensor(name="counted", fill="arange", shape=(5,), device="vgpu:1"),
        NewTensor(name="written", fill="text", text="[[1, 2.5], [3, -4]]", dtype="half", requires_grad=True),
        NewTensor(name="array", fill="file", text=str(folder / "array.npy"), device="vgpu:1"),
        NewTensor(name="gone", shape=(3,)),
        BuildModel(recipe="mlp", seed=5),
        BuildModel(recipe="tied", name="my tied-model", device="vgpu:1", seed=6),
        BuildModel(recipe="lazy-mlp", name="class", device="vgpu:0"),
        BuildModel(recipe="nested", dtype="bfloat16"),
        BuildModel(recipe="lstm", device="vgpu:0"),
        Forward(target="class"),
        Move(targets=("mlp:0", "x"), device="vgpu:0"),
        Move(targets=("mlp:2",), device="vgpu:1"),
        Undo(),
        Move(targets=("nested:0.block 1",), device="vgpu:1", dtype="float64"),
        EditElement(target="x", index=(0, 1), value=-7.5),
        EditElement(target="mlp:0.bias", index=(3,), value=0.25),
        EditElement(target="array", index=(1, 1), value=7.0),
        Undo(),
        Combine(left="x", right="x", operator="*", name="product"),
        Move(targets=("mlp",), device="vgpu:0"),
        Forward(target="mlp", input="product", output="result"),
        Forward(target="mlp:0", input="x"),
        Backward(target="mlp", input="x"),
        Backward(target="my tied-model"),
        Move(targets=("mlp", "product"), device="cpu", copy=True),
        Remove(names=("gone",)),
        Undo(),
        Redo(),
        AddVirtual(spec="L4"),
        Move(targets=("counted",), device="vgpu:2"),
        Move(targets=("nested",), device="vgpu:2"),
        lab.Initialise(target="mlp:2", rule="xavier-uniform", seed=7, biases=True),
        lab.Describe(target="mlp:0.weight"),
        Ask(target="x", question="device"),
        lab.SetRequiresGrad(targets=("mlp:0",), on=False),
        lab.SetTraining(target="mlp", on=False),
        lab.ClearGradients(target="mlp"),
        lab.Tie(first="nested:0.block 0.0.weight", second="nested:0.block 2.0.weight"),
        lab.Tie(first="nested:0.block 0.0.bias", second="nested:0.block 2.0.bias"),
        lab.Untie(target="nested:0.block 2.0.bias"),
        lab.MakeOptimizer(target="my tied-model", kind="adam", learning_rate=0.01),
        lab.TrainStep(target="my tied-model"),
        Move(targets=("my tied-model",), device="vgpu:0", optimizer=True),
        lab.TrainStep(target="my tied-model", input="x"),
        BuildModel(recipe="two-towers", name="towers"),
        PlanSplit(target="towers", budgets={"vgpu:0": 2**20, "vgpu:1": 2**20}),
        Split(target="towers", device_map={"query": "vgpu:0", "item": "vgpu:1"}),
        Forward(target="towers"),
        InsertHops(target="towers", on=False),
        InsertHops(target="towers"),
        BuildModel(recipe="two-towers", name="joined"),
        Split(target="joined", device_map={"query": "vgpu:0", "item": "vgpu:1"}),
        Join(target="joined", device="vgpu:1"),
        Replicate(target="mlp", devices=("vgpu:0", "vgpu:1")),
        TimeWork(device="vgpu:0", size=32, iterations=2),
        Crossover(device="vgpu:0", sizes=(16, 32)),
        rec.Save(targets=("mlp",), path=str(folder / "mlp.safetensors")),
        rec.Load(path=str(folder / "mlp.safetensors"), name="loaded", device="vgpu:1"),
        rec.LoadCheckpoint(target="mlp2", path=str(folder / "mlp.safetensors")),
        rec.CompareCheckpoint(target="mlp2", path=str(folder / "mlp.safetensors")),
        rec.OpenModel(source="mine.py:factory", folder=str(folder), name="mine", device="vgpu:1", seed=8, inputs="3x4"),
        Forward(target="mine"),
        Backward(target="mine"),
    ]


def test_a_long_session_runs_again_as_a_script_in_a_new_process(here: Here, tmp_path: Path) -> None:
    actions = commands(tmp_path)
    for command in actions:
        here.do(command)
    done = here.session.actions
    assert len(done) >= 30
    text = script_gives_the_same(here, tmp_path)
    assert "gone" not in here.engine.engine.workspace.names
    assert '"vgpu:1")' in text
    assert all(f"# {action.title}\n" in text for action in done)
    assert text.index('add_virtual_gpus("2x Tesla T4")') < text.index("samples.build")
    assert bound_beside(text, [*here.engine.engine.workspace.names, "gone"]) == set(), "an object could take its name"


# the text

ONE = Action("x is on cpu", "A *tensor* of 1 float32.", "import torch\nimport math\n\nx = torch.ones(1) * math.pi", 1.0)
TWO = Action("x is on\nvgpu:0", "", "from a import b, c\nimport torch\n\nx = x.to('vgpu:0')\n\nprint(b)", 2.0)
SHELL = Action("An odd one", "", "python -m something 'x'", 3.0)
AROUND = Surroundings("3.11.7", "2.13.0", "2x Tesla T4", "1,0")


def test_imports_appear_once_at_the_top_after_the_header_and_before_the_virtual_gpus() -> None:
    assert (
        script([ONE, TWO, SHELL], AROUND)
        == '''"""A session of DevExplorer as Python.

It ran on Python 3.11.7, PyTorch 2.13.0.
"""

import math
import os

import torch
from a import b
from a import c

from devexplorer import add_virtual_gpus

os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"  # read once, by the first use of CUDA
add_virtual_gpus("2x Tesla T4", visible="1,0")  # simulated

# x is on cpu
x = torch.ones(1) * math.pi

# x is on vgpu:0
x = x.to('vgpu:0')

print(b)

# An odd one
# python -m something 'x'
'''
    )


@pytest.mark.parametrize(
    "text",
    [
        'x\nimport os; os.system("id")', "x\rimport os", "x\x0cimport os", "x\u2028import os", "x\x85import os",
        '"""\nimport os\n"""', "\\", "nul\0", "\udcff", "\u202eimport os", "\x1b[2J",
    ],
)  # fmt: skip
def test_words_of_another_machine_stay_words(text: str) -> None:
    """Titles, descriptions, versions: none becomes code, none keeps the script from being compiled and written."""
    around = Surroundings(python_version=text, torch_version=f'2.13"""\n{text}\n"""')
    made = script([Action(text, text, "a = 1", 0.0)], around)
    made.encode()
    compile(made, "session.py", "exec")
    assert [ast.unparse(node) for node in ast.parse(made).body[1:]] == ["import torch", "a = 1"]
    assert all(letter.isprintable() for letter in made.replace("\n", ""))
    cells = json.loads(notebook([Action(text, text, "a = 1", 0.0)], around))["cells"]
    assert ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"] == ["import torch", "a = 1"]


@pytest.mark.parametrize("code", ["a = '\0'", "(" * 5000 + ")" * 5000, "no python\n\u202eat all\x1b[2J"])
def test_code_that_cannot_be_read_becomes_a_comment(code: str) -> None:
    made = script([Action("x", "", code, 0.0)], Surroundings())
    assert [ast.unparse(node) for node in ast.parse(made).body[1:]] == ["import torch"]
    assert all(letter.isprintable() for letter in made.replace("\n", ""))


def test_what_came_from_another_machine_says_so_first() -> None:
    actions = [Action("x is here", "", "import os", 0.0)]
    text = marked(script(actions, Surroundings()), "gpu1\nimport os")
    assert "# This came from gpu1?import os and was not checked" in text.splitlines()[1]
    assert ast.get_docstring(ast.parse(text)) is not None
    cells = json.loads(marked(notebook(actions, Surroundings()), "gpu1", is_notebook=True))["cells"]
    assert "came from gpu1 and was not checked" in "".join(cells[0]["source"])
    for sent in ("", "[]", "{}", '{"cells": 5}', "[" * 100_000):
        with pytest.raises(BadInput, match="gpu1 sent is not a notebook"):
            marked(sent, "gpu1", is_notebook=True)


@pytest.mark.parametrize("machine", ["gpu1", "coding: utf-7", "coding=rot13"])
def test_what_came_from_another_machine_is_read_as_it_is_shown(machine: str) -> None:
    """A first or second line could name an encoding in which the comments below are code."""
    text = marked("# -*- coding: utf-7 -*-\na = 1\n# b +AAo-import os\n", machine)
    assert tokenize.detect_encoding(BytesIO(text.encode()).readline)[0] == "utf-8"
    assert [ast.unparse(node) for node in ast.parse(text.encode()).body] == ["a = 1"]


def test_the_notebook_has_the_same_code_and_a_cell_of_words_for_each_action() -> None:
    actions = [ONE, TWO, SHELL]
    document = json.loads(notebook(actions, AROUND))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert document["metadata"]["kernelspec"] == {"display_name": "Python 3", "language": "python", "name": "python3"}
    cells = document["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code"] * (len(actions) + 1)
    assert set(cells[1]) == {"cell_type", "id", "metadata", "source", "execution_count", "outputs"}
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = "\n\n".join("".join(cell["source"]) for cell in cells[1::2])
    whole = ast.parse(script(actions, AROUND))
    assert ast.dump(ast.Module(whole.body[1:], [])) == ast.dump(ast.parse(code)), "the header is a text cell"
    assert "".join(cells[2]["source"]) == "### x is on cpu\n\nA \\*tensor\\* of 1 float32."


def test_a_file_is_written_whole_or_one_line_says_why_not(tmp_path: Path) -> None:
    path = tmp_path / "session.py"
    write(path, "x = 'é'\n")
    assert path.read_text(encoding="utf-8") == "x = 'é'\n"
    with pytest.raises(BadInput, match="could not be written") as refusal:
        write(tmp_path / "absent" / "session.py", "x")
    assert "\n" not in str(refusal.value)
    assert [one.name for one in tmp_path.iterdir()] == ["session.py"]


def test_a_session_that_opened_a_workspace_defines_what_was_in_it(here: Here, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from torch import nn\n\n\nclass Net(nn.Linear):\n    pass\n")
    path = str(tmp_path / "work.devexplorer")
    for command in (
        BuildModel(recipe="mlp", device="vgpu:0", seed=5),
        lab.MakeOptimizer(target="mlp", kind="adam", learning_rate=0.01),
        lab.TrainStep(target="mlp"),
        BuildModel(recipe="two-towers", name="towers"),
        Split(target="towers", device_map={"query": "vgpu:0", "item": "vgpu:1"}),
        InsertHops(target="towers"),
        rec.OpenModel(source="mine.py:Net?in_features=4&out_features=3", folder=str(tmp_path), name="my net", seed=8),
        EditElement(target="my net:bias", index=(1,), value=0.5),
        NewTensor(name="x", fill="randn", shape=(2, 20), device="vgpu:1", seed=3),
        SaveWorkspace(path=path),
    ):
        here.do(command)
    opening = Here("2x Tesla T4")
    try:
        for command in (
            NewTensor(name="gone", shape=(3,)),
            SetThreads(threads=1),
            OpenWorkspace(path=path, replace=True),
            RunModelCode(target="my net"),
            Forward(target="my net"),
            lab.TrainStep(target="mlp"),
            Forward(target="towers"),
            InsertHops(target="towers", on=False),
            Move(targets=("my net", "x"), device="vgpu:0"),
        ):
            opening.do(command)
        text = script_gives_the_same(opening, tmp_path)
        opening.do(SaveWorkspace(path=path, overwrite=True))
        assert "gone" not in text, "what was replaced is not made first"
        assert "torch.set_num_threads(1)" in text
        opens = text[: text.index("mlp = _opened")]
        ended = ran_alone(f"{opens}\nimport os\n\nos.unlink({path!r})\n{opens}", tmp_path)
        assert "was saved again since the session opened it" in ended.stderr
        assert ended.returncode == 1
        assert f"there is no file '{path}'" in ended.stderr
    finally:
        opening.close()


def test_a_session_that_began_with_a_copy_of_unsaved_work_says_so(here: Here, tmp_path: Path) -> None:
    path = str(tmp_path / "copy.devexplorer")
    here.do(BuildModel(recipe="mlp"))
    here.do(SaveWorkspace(path=path, copy_of=""))
    here.do(OpenWorkspace(path=path, replace=True, copy=True))
    ended = ran_alone(here.session.listener("files").script(), tmp_path)
    assert (ended.returncode, "save the workspace" in ended.stderr) == (1, True)


def ran_alone(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    write(folder / "alone.py", text)
    return subprocess.run(
        [sys.executable, str(folder / "alone.py")], capture_output=True, text=True, timeout=120, cwd=folder
    )


class PlayedSession:
    """What `SessionFiles` asks of a session."""

    actions: tuple[Action, ...] = (Action("x is on cpu", "A tensor.", "x = torch.ones(())", 5.0),)
    commands: tuple[Command, ...] = ()
    surroundings = Surroundings("3.12", "2.9", "2x Tesla T4")

    def __init__(self) -> None:
        self.events: list[object] = []

    def put(self, event: object) -> None:
        self.events.append(event)


def test_a_workspace_for_another_machine_is_that_file_s_once_it_has_arrived() -> None:
    session = PlayedSession()
    files = SessionFiles(cast(Session, session))
    origin = SentFrom(machine="laptop", path="/home/ada/work.devexplorer")
    again = rec.OpenWorkspace(path="/copies/work.devexplorer", replace=True, sent_from=origin)
    file = rec.WorkspaceFile(request=7, path="", sent_from=origin, again=again, on_its_way=True, contents=1)
    files.drained(PollResult([file], None))
    with pytest.raises(BadInput, match="save again to be sure"):
        files.arrived(8)
    files.arrived(7)
    assert session.events == [msgspec.structs.replace(file, on_its_way=False)]
    files.drained(PollResult([file], None))
    files.drained(PollResult([EngineLost(reason="", will_restart=True, time_unix_s=0.0)], None))
    with pytest.raises(BadInput, match="save again to be sure"):
        files.arrived(7)
