"""A configuration file as an option: found, read as data, refused in one line, guessed where it is plain."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.isolation import config_file
from devexplorer.core.isolation.config_file import ConfigFile
from devexplorer.core.isolation.model_classes import candidates, without_name
from devexplorer.core.isolation.model_source import describe, parse

NET = """
from torch import nn
from . import layers
class Block(nn.Module):
    def __init__(self, width): ...
class Net(nn.Module):
    def __init__(self, {arguments}): ...
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "layers.py").write_text("")
    (tmp_path / "pack" / "net.py").write_text(NET.format(arguments="cfg"))
    return tmp_path / "pack"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("config.yaml", "width: 8\nlayers: [1, 2]\nnested:\n  deep: true\n",
         {"width": 8, "layers": [1, 2], "nested": {"deep": True}}),
        ("config.YML", "a: {b: null}\n", {"a": {"b": None}}),
        ("config.json", '{"width": 8, "ratio": 0.5}', {"width": 8, "ratio": 0.5}),
        ("config.toml", 'width = 8\n[nested]\nname = "gelu"\n', {"width": 8, "nested": {"name": "gelu"}}),
    ],
)  # fmt: skip
def test_it_is_given_as_the_mapping_that_it_holds(package: Path, name: str, text: str, expected: object) -> None:
    if not name.endswith((".json", ".toml")):
        pytest.importorskip("yaml")
    (package / name).write_text(text)
    source = parse(f"{package}/net.py:Net?cfg=@{name}&width=4&inner.cfg=@{name}")
    assert source.options["cfg"] == ConfigFile(name)
    assert source.arguments() == {"cfg": expected, "width": 4, "inner": {"cfg": expected}}
    assert source.arguments()["cfg"] is not source.arguments()["cfg"], "the code may change what it is given"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.yaml", "a: b: c", "config.yaml is no YAML, line 1: mapping values are not allowed here"),
        ("config.yaml", "width: 8\nrun: !!python/object/apply:os.system [exit]", "is no YAML, line 2: could not det"),
        ("config.yaml", "width: !!int ''", "config.yaml is no YAML: "),
        ("config.yaml", "- 1\n- 2\n", "holds a list; a configuration has names with values, as in width: 64"),
        ("config.yaml", "hello", "config.yaml holds a str; a configuration has names"),
        ("config.yaml", "", "config.yaml is empty; a configuration has names"),
        ("config.json", "{", "config.json is no JSON: Expecting property name"),
        ("config.json", "[" * 100_000, "config.json is no JSON: "),
        ("config.json", "[]", "config.json holds a list"),
        ("config.toml", "a = ", "config.toml is no TOML: Invalid value (at"),
        ("config.toml", "x" * (config_file.MOST_BYTES + 1), "has 4.00 MiB; a configuration has at most 4.00 MiB"),
        ("config.toml", "caf\udce9 = 1", "config.toml is no text in UTF-8"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line(package: Path, name: str, text: str, words: str) -> None:
    if name.endswith(".yaml"):
        pytest.importorskip("yaml")
    (package / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput) as raised:
        parse(f"{package}/net.py:Net?cfg=@{name}").arguments()
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_yaml_without_pyyaml_says_so(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "config.yaml").write_text("width: 8\n")

    def without(name: str) -> Any:
        assert name == "yaml"
        raise ImportError(name)

    monkeypatch.setattr(config_file.importlib, "import_module", without)
    words = "config.yaml is YAML, and PyYAML is not installed: pip install pyyaml, or write it as JSON or TOML"
    with pytest.raises(BadInput, match=words):
        parse(f"{package}/net.py:Net?cfg=@config.yaml").arguments()


def test_it_is_looked_for_beside_the_code_above_it_and_in_the_current_folder(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = tmp_path / "elsewhere"
    (current / "configs").mkdir(parents=True)
    monkeypatch.chdir(current)
    places = [package, tmp_path, current]
    for index, folder in enumerate(places):
        (folder / "config.json").write_text(f'{{"place": {index}}}')
    for index, folder in enumerate(places):
        for source in (f"{package}/net.py:Net?cfg=@config.json", "pack.net:Net?cfg=@config.json"):
            assert parse(source).arguments(str(tmp_path)) == {"cfg": {"place": index}}, source
        (folder / "config.json").unlink()
    with pytest.raises(BadInput) as raised:
        parse("pack.net:Net?cfg=@config.json").arguments(str(tmp_path))
    assert str(raised.value) == f"there is no file 'config.json' in {package}, {tmp_path}, {current}"
    (current / "configs" / "small.json").write_text('{"place": 3}')
    for name in ("configs/small.json", f"{current}/configs/small.json"):
        assert parse(f"pack.net:Net?cfg=@{name}").arguments(str(tmp_path)) == {"cfg": {"place": 3}}
    with pytest.raises(BadInput, match=r"there is no file /no/such.json$"):
        parse("pack.net:Net?cfg=@/no/such.json").arguments(str(tmp_path))
    os.mkfifo(package / "config.json")
    with pytest.raises(BadInput, match=r"there is no file 'config.json'"):
        parse("pack.net:Net?cfg=@config.json").arguments(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("net:make?cfg=@", "'@' is no configuration file: its name ends with .yaml, .yml, .json, .toml"),
        ("net:make?cfg=@config.py", "'@config.py' is no configuration file"),
        ("transformers:gpt2?cfg=@a.json", "'@a.json' in 'transformers:gpt2?cfg=@a.json': only a class or function of"),
        ("torchvision:resnet18?cfg.a=@a.json", "only a class or function of yours takes a configuration file"),
        ("net:make?cfg=@a.json&cfg.width=3", "'cfg.width' in 'net:make?cfg=@a.json&cfg.width=3' already has a value"),
    ],
)
def test_an_option_that_names_none_is_refused_before_anything_runs(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse(text)
    assert words in str(raised.value)


def test_text_that_begins_with_the_sign_is_quoted(package: Path) -> None:
    assert parse(f"{package}/net.py:Net?name='@home'").arguments() == {"name": "@home"}


def test_what_will_run_names_it(package: Path) -> None:
    words = describe(f"{package}/net.py:Net?cfg=@config.yaml").words
    assert "Net() is called with config.yaml: first in a trial process" in words


@pytest.mark.parametrize(
    ("arguments", "files", "guesses"),
    [
        ("cfg", ["pack/config.yaml"], ["cfg=@config.yaml"]),
        ("cfg: dict[str, int]", ["pack/config.yml"], ["cfg=@config.yml"]),
        ("model_config: 'Mapping'", ["pack/config.toml"], ["model_config=@config.toml"]),
        ("cfg", ["pack/config_large.json", "pack/config_small.json", "pack/config.json"], ["cfg=@config.json"]),
        ("cfg", ["pack/config_small.json", "pack/config_large.json"], ["cfg=@config_large.json"]),
        ("cfg", ["pack/cfg.yaml", "pack/config.yaml"], ["cfg=@cfg.yaml"]),
        ("cfg", ["config.yaml"], ["cfg=@config.yaml"]),
        ("cfg", ["config.yaml", "pack/config_of.yaml"], ["cfg=@config_of.yaml"]),
        ("vocabulary, cfg, *, width", ["pack/vocabulary.json", "pack/config.yaml"],
         ["vocabulary=@vocabulary.json", "cfg=@config.yaml"]),
        ("width", ["pack/config.yaml"], []),
        ("cfg=None", ["pack/config.yaml"], []),
        ("cfg: Settings", ["pack/config.yaml"], []),
        ("cfg", ["pack/my config.yaml", "pack/config&.yaml", "pack/config.txt", "pack/settings.yaml"], []),
        ("cfg", [], []),
    ],
)  # fmt: skip
def test_the_file_that_is_probably_meant(
    package: Path, tmp_path: Path, arguments: str, files: list[str], guesses: list[str]
) -> None:
    (package / "net.py").write_text(NET.format(arguments=arguments))
    for file in files:
        (tmp_path / file).write_text("{}")
    block, net = candidates(package / "net.py")
    assert (block.guesses, list(net.guesses)) == ((), guesses)
    for option in guesses:
        [given] = parse(f"{package}/net.py:Net?{option}").config_files
        assert given.find(parse(f"{package}/net.py:Net").config_folders()).name == given.name


def test_the_way_to_a_model_has_it(package: Path) -> None:
    (package / "config.yaml").write_text("width: 8\n")
    said = without_name(str(package / "net.py")) or ""
    assert f"'{package}/net.py:Block?width=…' or '{package}/net.py:Net?cfg=@config.yaml'" in said
