"""A model of the user's that is made of a configuration file: here, in its trial, and in a script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.models.builders import SourceRecipe
from devexplorer.core.models.trial import TriedSources, tried

pytestmark = pytest.mark.usefixtures("warm_processes")

NET = """
from torch import nn
from .layers import block
class Net(nn.Module):
    def __init__(self, cfg, depth=1):
        super().__init__()
        width = cfg.pop("width")
        self.blocks = nn.ModuleList(block(width) for _ in range(depth))
"""
FILES = {"config.yaml": "width: 8\n", "config.json": '{"width": 8}', "config.toml": "width = 8\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    known = set(sys.modules)
    (tmp_path / "configured").mkdir()
    (tmp_path / "configured" / "layers.py").write_text("from torch import nn\ndef block(n): return nn.Linear(n, n)\n")
    (tmp_path / "configured" / "net.py").write_text(NET)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.partition(".")[0] == "configured":
            del sys.modules[name]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", ["configured/net.py", "configured.net"])
def test_it_is_made_of_it_here_and_in_its_script(folder: Path, place: str, name: str) -> None:
    if name.endswith(".yaml"):
        pytest.importorskip("yaml")
    (folder / "configured" / name).write_text(FILES[name])
    recipe = SourceRecipe(parse(f"{place}:Net?cfg=@{name}&depth=2"), str(folder))
    for _ in range(2):  # the class takes a value out of what it is given
        made = recipe.make()
        assert str(made.model).count("2 x Linear(in_features=8") == 1
    assert str(folder / "configured" / name) in recipe.files()
    script = made.code.text("net", 0, made.changes)
    assert "devexplorer" not in script
    ran = subprocess.run(
        [sys.executable, "-P", "-c", f"{script}\nprint(net)"], capture_output=True, text=True, cwd=folder.parent
    )
    assert "2 x Linear(in_features=8" in ran.stdout, ran.stderr


def test_within_another_option_it_is_read_by_the_script_too(folder: Path) -> None:
    (folder / "configured" / "net.py").write_text(
        "from torch import nn\ndef make(sizes): return nn.Linear(sizes['first']['width'], sizes['out'])\n"
    )
    (folder / "configured" / "a.json").write_text('{"width": 3}')
    recipe = SourceRecipe(parse("configured/net.py:make?sizes.first=@a.json&sizes.out=2"), str(folder))
    made = recipe.make()
    script = {"net": nn.Identity()}
    exec(made.code.text("net", 0, made.changes), script)
    for model in (made.model, script["net"]):
        assert isinstance(model, nn.Linear)
        assert (model.in_features, model.out_features) == (3, 2)


def test_one_that_has_changed_is_tried_again(folder: Path) -> None:
    file = folder / "configured" / "config.json"
    file.write_text('{"width": 8}')
    trials, source = TriedSources(), parse("configured/net.py:Net?cfg=@config.json")
    first = trials.demand(source, str(folder))
    assert first.sizes == (("float32", 64, 1), ("float32", 8, 1))
    assert trials.demand(source, str(folder)) is first
    file.write_text('{"width": 4}')
    os.utime(file, (1, 1))
    assert trials.demand(source, str(folder)).sizes == (("float32", 16, 1), ("float32", 4, 1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("?cfg=@no.json", "there is no file 'no.json' in "),
        ("?cfg=@list.json", "list.json holds a list; a configuration has names with values"),
        ("", "missing 1 required positional argument: 'cfg'; give options as in 'configured/net.py:Net?cfg=@config.js"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_of_the_trial(folder: Path, options: str, words: str) -> None:
    (folder / "configured" / "list.json").write_text("[]")
    (folder / "configured" / "config.json").write_text('{"width": 8}')
    with pytest.raises(BadInput) as raised:
        tried(parse(f"configured/net.py:Net{options}"), str(folder))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
