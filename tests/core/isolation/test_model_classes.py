"""The models of a Python file, found without running it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devexplorer.core.isolation.model_classes import Candidate, beside, candidates, meant, without_name
from devexplorer.core.isolation.model_source import parse

NET = """
import torch, sys
import torch.nn as tnn
from torch import nn
from torch.nn import Module as M, Sequential, Parameter
from layers import Block, Helper
from .layers import Norm
from . import layers
from lightning import LightningModule
from typing import Generic
open(f"{__file__}.ran", "w")

class Plain: ...
class Net(nn.Module):
    def __init__(self, width, depth=2, *, heads): ...
class Deep(Net): ...
class Deeper(Deep["x"]):
    def __init__(self): ...
class A(torch.nn.Linear): ...
class B(tnn.modules.conv.Conv2d): ...
class C(M): ...
class D(Generic, Block): ...
class E(Norm): ...
class F(layers.Block): ...
class G(LightningModule): ...
class Values(Parameter): ...
class Tool(Helper): ...
class Loop(Loop): ...
class Error(Exception): ...
if sys.version_info > (3,):
    class InIf(nn.Module): ...
else:
    class InIf(nn.Module): ...
try:
    class InTry(Sequential): ...
except ImportError:
    pass

def make(width=3):
    def inner():
        return 3
    net = Net(width, heads=1)
    return net.to("cpu")
def annotated(width) -> "nn.Module": ...
def chained(): return Deeper().eval()
def _private(): return Net()
def number(): return 3
async def later(): return Net()
"""
LAYERS = """
from torch import nn
class Base(nn.Module): ...
class Block(Base):
    def __init__(self, size): ...
class Norm(Block): ...
class Helper: ...
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "net.py"


def test_classes_that_lead_to_torch_nn_and_functions_that_return_one(file: Path) -> None:
    found = candidates(file)
    assert [item.name for item in found if item.is_class] == [
        "Net", "Deep", "Deeper", "A", "B", "C", "D", "E", "F", "G", "InIf", "InTry",
    ]  # fmt: skip
    assert [item for item in found if not item.is_class] == [
        Candidate("make", False, ()), Candidate("annotated", False, ("width",)), Candidate("chained", False, ()),
    ]  # fmt: skip
    needs = {item.name: item.needs for item in found}
    assert needs["Net"] == needs["Deep"] == ("width", "heads")
    assert needs["Deeper"] == needs["A"] == ()
    assert not Path(f"{file}.ran").exists()


def test_a_configuration_with_defaults_alone_need_not_be_given(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "config.py").write_text(
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Config:\n    width: int = 4\n"
        "@dataclasses.dataclass\nclass Sizes:\n    width: int\nclass Plain:\n    width: int = 4\n"
    )
    (package / "net.py").write_text(
        "from torch import nn\nfrom .config import Config, Sizes, Plain\nfrom . import config\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, config: Config, *, other: 'config.Config', sizes: Sizes, plain: Plain, n: int): ...\n"
    )
    [net] = candidates(package / "net.py")
    assert net.needs == ("sizes", "plain", "n")


def test_everything_of_a_file_beside_can_be_imported_and_files_can_import_each_other(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").write_text("from .sub.net import Net\n")
    (package / "base.py").write_text("from torch.nn import *\nfrom .sub.net import Net\nclass Base(Module): ...\n")
    (package / "sub" / "net.py").write_text(
        "from ..base import *\nfrom pack.base import Base as B\nfrom .. import Net as Other\n"
        "class Net(Base): ...\nclass Second(B): ...\nclass Third(Other): ...\n"
    )
    assert [item.name for item in candidates(package / "sub" / "net.py")] == ["Net", "Second", "Third"]


@pytest.mark.parametrize("content", [b"def make(:\n", b"\x00\xff", b"", b"x = 3\n"])
def test_a_file_without_models_has_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "net.py").write_bytes(content)
    assert candidates(tmp_path / "net.py") == ()
    assert candidates(tmp_path / "gone.py") == ()
    assert meant(parse(f"{tmp_path}/net.py:Net"), "") == ()


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [("Dep", "Deep"), ("net", "Net"), ("mak", "make"), ("Net", None), ("nn", None), ("Plain", None), ("Xyzzy", None)],
)
def test_the_class_that_was_meant(file: Path, wanted: str, nearest: str | None) -> None:
    found = meant(parse(f"{file}:{wanted}"), "")
    assert found[:1] == (() if nearest is None else (nearest,))
    assert meant(parse(f"net:{wanted}"), str(file.parent)) == found
    assert meant(parse("nowhere:Net"), str(file.parent)) == ()


def test_of_few_all_could_be_meant(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\nclass Net(nn.Module): ...\n")
    assert meant(parse(f"{tmp_path}/net.py:Transformer"), "") == ("Net",)


def test_what_a_file_imports_from_beside_it(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    (package / "blocks").mkdir(parents=True)
    for name in ("__init__.py", "layers.py", "blocks/wide.py"):
        (package / name).write_text("")
    (package / "data").mkdir()
    net = package / "net.py"
    net.write_text(
        "import os, torch.nn as nn\nimport layers as own\nfrom .heads import Head\nfrom . import tails\n"
        "def make():\n    from blocks.wide import Wide\n    import pack.other, data\n"
    )
    assert beside(net) == ("layers", "heads", "tails", "blocks", "pack")
    net.write_text("import os\nfrom torch import nn\nclass Net(nn.Module): ...\n")
    assert beside(net) == ()
    net.write_text("def make(:")
    assert beside(net) == beside(tmp_path / "gone.py") == ()


CELL = {"cell_type": "code", "source": "from torch import nn\nclass Net(nn.Module): ...\nnet = Net().cuda()"}
NOTEBOOK = json.dumps({"cells": [CELL], "metadata": {}, "nbformat": 4})


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("pack/net.py", "write pack/net.py:Net or 'pack/net.py:make?width=…'"),
        ("pack/net.py?width=3", "write pack/net.py:Net or 'pack/net.py:make?width=…'"),
        ("pack.net", "write pack.net:Net or 'pack.net:make?width=…'"),
        ("pack", "write pack:Net or 'pack:build?width=…'"),
        ("lib", "write lib:Net"),
        ("train.ipynb", "write train.ipynb:Net"),
        ("none.py", "'none.py' names no model, and no class or function in it clearly makes one; write none.py:NAME"),
        ("absent.py", "there is no file 'absent.py'"),
        ("json", None),
        ("absent.module", None),
        ("mlp", None),
    ],
)
def test_a_file_or_module_without_a_name_is_told_what_is_in_it(tmp_path: Path, target: str, words: str | None) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "src").mkdir()
    net = "from torch import nn\nclass Net(nn.Module): ...\ndef make(width):\n    return Net()\n"
    (tmp_path / "pack" / "net.py").write_text(net)
    (tmp_path / "pack" / "__init__.py").write_text("from .net import Net, make as build\nfrom os import path\n")
    (tmp_path / "src" / "lib.py").write_text("from torch import nn\nclass Net(nn.Module): ...\n")
    (tmp_path / "train.ipynb").write_text(NOTEBOOK)
    (tmp_path / "none.py").write_text("1 / 0")
    told = without_name(target, str(tmp_path))
    assert told is None if words is None else told is not None and told.endswith(words)


def test_a_file_that_may_not_be_read_is_not_said_to_hold_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shut.py").write_text("from torch import nn\nclass Net(nn.Module): ...\n")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
    assert without_name("shut.py", str(tmp_path)) == "you may not read the file 'shut.py'"
