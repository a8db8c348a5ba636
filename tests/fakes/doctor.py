"""The pytest fixtures `examined` and `made`: code is written to a file, its model examined or made in this process."""

from __future__ import annotations

import importlib.util
import io
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from devexplorer.core.doctor.examine import examine
from devexplorer.core.records import Diagnosis, DoctorRequest
from devexplorer.core.virtual.device.machine import VirtualMachine

HEADER = "import torch\nfrom torch import nn\n"
MARK = "# <-"
Examined = Callable[..., Diagnosis]
Made = Callable[[str], Callable[[], nn.Module]]


def marked(file: str | Path) -> list[int]:
    """The numbers of the marked lines in a file."""
    return [number for number, line in enumerate(Path(file).read_text().split("\n"), 1) if MARK in line]


@pytest.fixture
def examined(tmp_path: Path, virtual: VirtualMachine) -> Iterator[Examined]:
    """`examined(code, train=True)`: the diagnosis of the class `Net` in that code; accepts the fields of
    `DoctorRequest`."""

    def carry_out(code: str, *, name: str = "net.py", factory: str = "Net", **wishes: Any) -> Diagnosis:
        (tmp_path / name).write_text(HEADER + textwrap.dedent(code))
        return examine(DoctorRequest(source=f"{name}:{factory}", folder=str(tmp_path), **wishes))

    yield carry_out
    for module in [
        key for key, one in list(sys.modules.items()) if str(getattr(one, "__file__", None)).startswith(str(tmp_path))
    ]:
        del sys.modules[module]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """`made(text)`: what makes the model `Net` of the file one_net.py with this text."""

    def written(text: str) -> Callable[[], nn.Module]:
        (tmp_path / "one_net.py").write_text(text)
        spec = importlib.util.spec_from_file_location("one_net", tmp_path / "one_net.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["one_net"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Net  # type: ignore[no-any-return]

    yield written
    sys.modules.pop("one_net", None)


def lines_of(text: str) -> list[str]:
    """With line endings; only a line feed ends a line."""
    return io.StringIO(text, newline="\n").readlines()


def patched(source: str, patch: str) -> str:
    """The source with a unified diff of one file applied; asserts that it fits."""
    lines, result, at = lines_of(source), list[str](), 0
    for line in lines_of(patch)[2:]:
        if line.startswith("@@"):
            start = int(line.split()[1].partition(",")[0].lstrip("-")) - 1
            result += lines[at:start]
            at = start
        elif line.startswith("\\"):
            result[-1] = result[-1].rstrip("\n")
        elif line.startswith("+"):
            result.append(line[1:])
        else:
            assert lines[at].rstrip("\n") == line[1:].rstrip("\n"), f"the patch does not fit at line {at + 1}"
            result += [line[1:]] * line.startswith(" ")
            at += 1
    return "".join([*result, *lines[at:]])
