"""A notebook as a source of models: what of it is run, and one line for each way in which it can be wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from devexplorer.core.base import BadInput
from devexplorer.core.files.kinds import MODEL, recognise
from devexplorer.core.isolation import notebook
from devexplorer.core.isolation.model_classes import Candidate, candidates
from devexplorer.core.isolation.model_source import describe, parse
from devexplorer.core.models.builders import SourceRecipe
from devexplorer.core.models.class_source import class_source

CELLS = (
    "%matplotlib inline\n!pip install torch\nimport torch\nfrom torch import nn\nopen('ran', 'w').write('x')",
    "%%bash\nls",
    "%%time\nfrom dataclasses import dataclass\n@dataclass\nclass Config:\n    width: int\nconfig = Config(width=4)",
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nsides = [2 * n for n in range(2)]\n"
    "try:\n    import missing_package\n    print('here')\nexcept ImportError:\n    missing_package = None\n"
    "if len(sides) > 1:\n    !nvidia-smi\n    activation = lambda x: x.relu()",
    "text = open('input.txt').read()\nvocabulary = sorted(set(text))\nfor epoch in range(3):\n    loss = epoch",
    "class Net(nn.Module):\n    def __init__(self, width=config.width):\n        super().__init__()\n"
    "        self.layer = nn.Linear(width, sides[1])\n"
    "    def forward(self, x):\n        return activation(self.layer(x))",
    "class Words(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.table = nn.Embedding(len(vocabulary), 2)\nmodel = Net()\nmodel.train()",
    "def half(:\n  pass",
)


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield write(tmp_path, [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in CELLS])
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder: Path, cells: object, **more: object) -> Path:
    path = folder / "net.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5} | more))
    return path


def test_its_models_are_listed_and_nothing_is_run(net: Path) -> None:
    assert recognise(net).kind == MODEL
    assert candidates(net) == (Candidate("Net", True, ()), Candidate("Words", True, ()))
    assert "Of the notebook" in describe(f"{net}:Net").words
    assert not (net.parent / "ran").exists()


def test_a_model_is_built_of_its_definitions_alone(net: Path) -> None:
    made = SourceRecipe(parse(f"{net}:Net"), "").make(0)
    assert made.model(torch.ones(1, 4)).shape == (1, 2)
    assert not (net.parent / "ran").exists()
    source = class_source(type(made.model))
    assert source is not None, "what explains failures reads the cell"
    assert (source.file, source.tree.lineno) == (f"{net}, cell 6", 1)
    cells = json.loads(net.read_text())["cells"]
    cells[5]["source"].insert(0, "# edited since\n")
    write(net.parent, cells)
    again = class_source(type(SourceRecipe(parse(f"{net}:Net"), "").make(0).model))
    assert again is not None
    assert again.tree.lineno == 2
    space: dict[str, object] = {}
    exec(f"import torch\n{made.code.text('again', 0, made.changes, '')}", space)
    assert str(space["again"]) == str(made.model)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("Words", r"name 'vocabulary' is not defined \(net.ipynb, cell 7, line 4\); cell 5 sets 'vocabulary'"),
        ("model", "has no class or function 'model'; cell 7 sets 'model', and is not run"),
        ("half", r"has no class or function 'half'; cell 8 has a syntax error \(line 1\)"),
    ],
)  # fmt: skip
def test_what_needs_a_cell_that_is_not_run_is_said_in_one_line(net: Path, factory: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as error:
        SourceRecipe(parse(f"{net}:{factory}"), "").make(0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"cells": [', "net.ipynb is damaged: a notebook is JSON, and this is not (line 1)"),
        ("[]", "net.ipynb cannot be opened: it has no cells"),
        ('{"worksheets": []}', "it was saved by a Jupyter before 2015"),
        ('{"cells": [], "metadata": {"language_info": {"name": "R"}}}', "is a notebook of R"),
    ],
)
def test_a_notebook_that_is_none_gets_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "net.ipynb"
    path.write_text(text)
    assert said in recognise(path).reason
    assert candidates(path) == ()
    with pytest.raises(BadInput, match=r"^net\.ipynb"):
        notebook.read(path)


def test_odd_cells_are_passed_over(tmp_path: Path) -> None:
    cells = [None, {"cell_type": "markdown", "source": "# x"}, {"cell_type": "code", "source": "a = 1"}, {}]
    assert len(notebook.read(write(tmp_path, cells)).statements) == 1
