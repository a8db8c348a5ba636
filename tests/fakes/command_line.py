"""Runs commands for tests: the document of a command that succeeds, the error line of one that fails. Fixtures for
`conftest`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from devexplorer.core.cli.run import main
from devexplorer.core.devices.catalog import Build
from devexplorer.core.feature import features
from devexplorer.core.virtual.backend import install, unavailable

T4S = "2x Tesla T4"
CLI = [sys.executable, "-m", "devexplorer.core.cli"]
Json = dict[str, Any]
Document = Callable[..., Json]
Refusal = Callable[..., str]


@pytest.fixture
def no_virtual_gpus_left() -> Iterator[None]:
    """Every command starts with a clean machine, as a separate process would."""
    if unavailable() is not None:  # a torch before 2.10: there are none
        yield
        return
    machine = install()
    machine.reset()
    yield
    machine.reset()


@pytest.fixture
def cpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch` takes the installed torch for a CPU build: cards have the names that NVML gives them."""
    if "watch" in features():
        monkeypatch.setattr("devexplorer.core.watch.devices.installed_build", lambda: Build("2.13.0"))


def strictly(text: str) -> Json:
    """Decode JSON without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in a document")

    content = json.loads(text, parse_constant=refuse)
    assert isinstance(content, dict)
    assert content["schema"] == 1
    return content


@pytest.fixture
def document(capfd: pytest.CaptureFixture[str]) -> Document:
    """Run a command that must succeed; returns its only document."""

    def run(*argv: str) -> Json:
        assert main([*argv, "--json"]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        assert out.endswith("\n")
        assert out.count("\n") == 1, "one document, one line"
        return strictly(out)

    return run


@pytest.fixture
def refusal(capfd: pytest.CaptureFixture[str]) -> Refusal:
    """Run a command that must fail; returns the one line that says why."""

    def run(*argv: str) -> str:
        assert main(list(argv)) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("devexplorer: ")
        assert err.count("\n") == 1, err
        return err

    return run


def has(content: Json, **types: Any) -> None:
    """Whether the keys exist with values of these types; a tuple with NoneType allows null."""
    for key, kind in types.items():
        assert key in content, key
        assert isinstance(content[key], kind), (key, content[key])
        assert kind is bool or not isinstance(content[key], bool), (key, content[key])


NONE = type(None)
OPTIONAL_INT, OPTIONAL_TEXT, OPTIONAL_NUMBER = (int, NONE), (str, NONE), (int, float, NONE)
