"""Parsing and checking a source before anything runs: without torch, without imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.base.dtypes import parse_input_shapes
from devexplorer.core.isolation.model_source import Source, describe, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("package.module:Net", ("module", "package.module", "Net", {})),
        (" models:make?width=3&deep=true&name=gelu ", ("module", "models", "make", {"width": 3, "deep": True,
                                                                                    "name": "gelu"})),
        ("models:Net.small", ("module", "models", "Net.small", {})),
        ("path/to/my net.py:Net", ("file", "path/to/my net.py", "Net", {})),
        ("C:\\\\nets\\\\net.py:Net", ("file", "C:\\\\nets\\\\net.py", "Net", {})),
        ("torchvision:resnet50", ("torchvision", "resnet50", "", {})),
        ("transformers:gpt2?n_layer=2&n_embd=64", ("transformers", "gpt2", "", {"n_layer": 2, "n_embd": 64})),
        ("transformers:clip?text_config.hidden_size=8&text_config.layer.name=a&x=1", (
            "transformers", "clip", "", {"text_config": {"hidden_size": 8, "layer": {"name": "a"}}, "x": 1})),
        ("transformers:path/to/config.json?x=[1, 2]&y=None&z=-0.5", (
            "transformers", "path/to/config.json", "", {"x": [1, 2], "y": None, "z": -0.5})),
    ],
)  # fmt: skip
def test_what_a_source_means(text: str, expected: tuple[object, ...]) -> None:
    source = parse(text)
    assert (source.kind, source.place, source.factory, source.options) == expected
    assert source.own_code == (source.kind in ("module", "file"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no model; write package.module:factory"),
        ("net", "names no model"),
        ("net:", "is no package.module:factory"),
        (":make", "is no package.module:factory"),
        ("transformers:", "names no model of transformers"),
        ("net:make()", "cannot be the name of a class or function"),
        ("my-net:make", "neither a module"),
        ("../net:make", "neither a module"),
        ("net:make?width", "is not an option; write options as key=value"),
        ("net:make?wi dth=3", "is not an option"),
        ("net:make?cfg=Config(width=3)", "write a function without arguments that returns the model"),
        ("net:make?act=nn.GELU()", "is a call"),
        ("net:make?width=3&width=4", "appears twice"),
        ("net:make?width=3&width.low=4", "already has a value"),
        ("net:make?width.low=3&width.low=4", "appears twice"),
        ("net:make?width..low=3", "is not an option"),
    ],
)
def test_what_is_no_source_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words.replace("(", r"\(").replace(".", r"\.")):
        parse(text)


@pytest.mark.parametrize(
    ("text", "stem"),
    [("a.b:MyNet", "mynet"), ("n.py:Net.small", "small"), ("transformers:bert", "bert"),
     ("transformers:a/tiny-llama/config.json", "tiny-llama"), ("transformers:a/other.json", "other"),
     ("torchvision:resnet50", "resnet50"), ("m:_", "model")],
)  # fmt: skip
def test_the_name_that_it_gets(text: str, stem: str) -> None:
    assert parse(text).stem == stem


def test_it_is_said_what_will_run_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "package" / "nets.py").write_text("raise SystemExit")
    found = describe("package.nets:Net", str(tmp_path))
    assert found.own_code
    assert found.file == str(tmp_path / "package" / "nets.py")
    assert found.folder == str(tmp_path / "package")
    assert f"The module package.nets ({found.file}) is imported" in found.words
    assert "Net() is called" in found.words
    file = describe("package/nets.py:Net", str(tmp_path))
    assert (file.own_code, file.file, file.folder) == (True, found.file, found.folder)
    assert "not found from" in describe("no.such:Net", str(tmp_path)).words
    library = describe("transformers:gpt2")
    assert not library.own_code
    assert "No code of yours runs and nothing is downloaded" in library.words
    with pytest.raises(BadInput):
        describe("net")


def test_the_window_can_ask_without_torch() -> None:
    code = (
        "import sys\n"
        "from devexplorer.core.isolation.model_source import describe\n"
        "from devexplorer.core.base.dtypes import parse_input_shapes\n"
        "describe('torch.nn:Linear'); parse_input_shapes('2x3:int64')\n"
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_shapes_of_inputs() -> None:
    assert parse_input_shapes("4x12") == (((4, 12), None),)
    assert parse_input_shapes(" 2 × 16 : int64, scalar:float ,7") == (((2, 16), "int64"), ((), "float32"), ((7,), None))
    wrong = {
        "4x": "is no input",
        "": "is no input",
        "0x3": "sizes begin at 1",
        "9999999999x9": "the most",
        "3:complx": "complx",
    }
    for text, words in wrong.items():
        with pytest.raises(BadInput, match=words):
            parse_input_shapes(text)


def test_a_path_of_its_own() -> None:
    assert Source("", "file", "net.py", "Net").file("/home/me") == Path("/home/me/net.py")
    assert Source("", "file", "/a/net.py", "Net").file("/home/me") == Path("/a/net.py")
