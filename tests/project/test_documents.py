"""Runs what the documents show: each code block, each command, each model; exceptions are listed here with reasons.

Commands for CUDA devices run on virtual ones (on cards in the environment of docs/standin.md), benchmarks run briefly,
and what would help a model to fit is not worked out: that goes on for 15 seconds, and what comes of it depends on the
speed of the machine. The largest batch is looked for where its answer is shown."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from devexplorer.core.cli.arguments import parse
from devexplorer.core.cli.bench_options import options
from devexplorer.core.cli.run import main
from devexplorer.core.planner.commands import fit
from devexplorer.core.planner.records import FitReport, FitSpec

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left", "warm_processes")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
LANGUAGES = {"sh", "python", "yaml", "console", "text"}
"""Of a block; `console` is a command with its output, `text` is not run."""

NOT_RUN = {
    "python3 -m venv": "installs; .ci/run does it in a clean clone",
    "pip install": "installs",
    ".venv/bin/python -m pytest": "the tests themselves",
    "python -m pytest": "the tests themselves",
    "python -m build": "makes the files for a package index; tests/project/test_packaging.py says what is in them",
    ".venv/bin/ruff": "a check of the repository, which .ci/run does",
    ".venv/bin/mypy": "a check of the repository, which .ci/run does",
    "PYTHONPATH=.ci/types .venv/bin/lint-imports": "a check of the repository, which .ci/run does",
    "python tests/": "takes minutes; that the script is there is looked at",
    ".venv/bin/python tests/": "takes minutes; that the script is there is looked at",
    "devexplorer bench allreduce --rendezvous": "meets ranks on another machine; tests/core/benchmark does it on one",
    'devexplorer fit resnet50 --gpu "4090 calibrated"': "needs a calibrated card; tests/core/cli makes one",
    "devexplorer fleet --hosts": "needs other machines; tests/scenarios/fleet goes to some over ssh",
    "devexplorer fleet check --hosts": "needs other machines; tests/scenarios/fleet goes to some over ssh",
    "devexplorer fleet --cluster": "needs a cluster; tests/scenarios/fleet/test_cluster.py starts one",
    "devexplorer cluster up": "a cluster until Ctrl-C; tests/scenarios/fleet/test_cluster.py starts one",
    "devexplorer compare": "needs two reports; tests/core/observe/test_compare.py makes some",
    "devexplorer run": "replaces the process; tests/core/observe runs scripts",
    "devexplorer attach": "needs a script that runs; tests/core/observe/test_attach.py starts some",
    "devexplorer explain": "needs a report; tests/core/observe writes some",
    "devexplorer tour": "needs Qt; tests/gui takes the tour",
    "devexplorer FILE": "opens the window; tests/gui does",
    "devexplorer --replay": "opens the window; tests/gui does",
    "devexplorer --virtual": "opens the window; tests/gui does",
    "devexplorer --ssh": "opens the window; tests/gui does",
    "devexplorer --script": "opens the window; tests/gui does",
    "devexplorer --python": "opens the window, in an environment of the reader's",
}
"""Start of a command -> why it is not run here. Commands of the program are still parsed."""
BEGINS = r"devexplorer( |$)|pip install |python tests/|python -m "
NAMES = r"devexplorer (place|doctor|fit|bench|fleet|fleet check)|python -m \w+"
"""The name of a command without arguments."""
ON_CARDS = bool(os.environ.get("FAKE_CUDA_LEDGER"))
NOT_ON_CARDS = {
    "devexplorer bench calibrate": "measures speed with shapes that take a CPU hours",
    "devexplorer bench allreduce": "needs NCCL",
}
PLACEHOLDERS = {"FILE": "run.devrec", "DIR": "pictures", "TARGET": "mlp", "PORT": "0"}


class Piece(NamedTuple):
    """Something in a document."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> list[Piece]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"(?ms)^( *)```(\w*)\n(.*?)^\1```$", text):
            found.append(Piece(page, text.count("\n", 0, match.start()) + 1, match[2], textwrap.dedent(match[3])))
    return found


def spans() -> list[Piece]:
    """`Code` within sentences and tables."""
    found = []
    for page in PAGES:
        text = re.sub(
            r"(?ms)^ *```.*?^ *```$", lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8")
        )
        for match in re.finditer(r"`([^`]+)`", text):
            found.append(Piece(page, text.count("\n", 0, match.start()) + 1, "", " ".join(match[1].split())))
    return found


def commands() -> dict[str, str]:
    """Command -> where it first appears. tests/core/doctor/test_docs.py runs those of the doctor's pages on their
    page's code."""
    found: dict[str, str] = {}
    for block in blocks():
        if block.language in ("sh", "console"):
            for line in block.text.splitlines():
                command = line.partition("  # ")[0].partition(" # ")[0].strip()
                if block.language == "sh" or command.startswith("$ "):
                    found.setdefault(command.removeprefix("$ "), block.place)
        for command in re.findall(r"(?m)^ *- run: (devexplorer .*)", block.text) if block.language == "yaml" else ():
            found.setdefault(command, block.place)
    for span in spans():
        if re.fullmatch(NAMES, span.text) is None and re.match(BEGINS, span.text) and span.page.parent.name != "doctor":
            for command in variants(span.text):
                found.setdefault(command, span.place)
    return found


def variants(command: str) -> set[str]:
    """`tour [--screenshots DIR]` is two commands, without and with the bracketed part; `devexplorer[models]` is not a
    command."""
    return {re.sub(r" \[[^\]]*\]", "", command), re.sub(r" \[([^\]]*)\]", r" \1", command)}


COMMANDS = commands()


def reason(command: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


def test_every_block_says_what_it_is() -> None:
    assert not [block.place for block in blocks() if block.language not in LANGUAGES]


def test_a_command_that_is_not_run_is_one_of_ours_or_names_a_file_that_is_there() -> None:
    for command in [one for one in COMMANDS if reason(one) is not None]:
        for script in re.findall(r"tests/[\w/]+\.py", command):
            assert (ROOT / script).is_file()
        if command.startswith("devexplorer"):
            parse(argv(command))


def argv(command: str) -> list[str]:
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(command)[1:]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands run, with the model of docs/doctor.md in net.py and where its workflow expects it,
    and a checkpoint."""
    code = next(block.text for block in blocks() if block.page.name == "doctor.md" and block.language == "python")
    (tmp_path / "model").mkdir()
    for name in ("net.py", "model/net.py"):
        (tmp_path / name).write_text(code)
    torch.save({"w": torch.ones(2)}, tmp_path / "model.pth")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def on_virtual_gpus(command: str) -> list[str]:
    words = [word.replace("cuda:", "vgpu:") for word in argv(command)]
    virtual = any(word.startswith("vgpu:") for word in words)
    return [*words, "--virtual", "2x Tesla T4"] if virtual else words


def on_cards(command: str) -> list[str]:
    """With a device where the command takes one, and with shapes for the CPU that computes in a card's place."""
    why = next((why for start, why in NOT_ON_CARDS.items() if command.startswith(start)), None)
    if why is not None:
        pytest.skip(why)
    words = argv(command)
    small = {"--size": "64", "--sizes": "32:64:32"}
    for at, word in enumerate(words[:-1]):
        words[at + 1] = small.get(word, words[at + 1])
    if words[0] in ("place", "doctor", "bench") and "--device" not in words and "--virtual" not in words:
        words += ["--device", "cuda:1"] if words[1] != "bandwidth" else ["--device", "cuda:0", "cuda:1"]
    return words


@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if reason(one) is None and one != "devexplorer"], ids=COMMANDS.get
)
def test_every_other_command_runs(
    command: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    block = next((one for one in blocks() if one.language == "console" and command in one.text), None)
    planned = fit.planned

    def plan_briefly(spec: FitSpec, *others: Any) -> FitReport:
        return planned(replace(spec, options=False, search=spec.search and block is not None), *others)

    monkeypatch.setattr(fit, "planned", plan_briefly)
    words = on_cards(command) if ON_CARDS else on_virtual_gpus(command)
    kind = words[1] if words[0] == "bench" else None
    if kind is not None:
        words += ["--no-store"]
        quick = {"--seconds": "0.02"}
        if kind != "matmul":
            quick |= {"--bytes": "4K", "--iterations": "5"}
        if kind == "allreduce":
            quick |= {"--size": "4K,64K"}
        takes = {flag for flag, (_, kinds) in options().items() if kind in kinds}
        words += [
            part for flag, value in quick.items() if flag in takes and flag not in words for part in (flag, value)
        ]
    if kind == "sweep" and "--device" not in words:
        words += ["--device", "vgpu:0", "--virtual", "Tesla T4"]  # a CPU would take hours for some of the shapes
    if words[0] == "fleet" and "--prometheus" in words:
        words += ["--count", "1"]
        words = ["0" if word == "9400" else word for word in words]
    if words[0] == "watch":
        words += ["--count", "1", "--interval", "0.02"]
        words = ["0" if word == "9400" else word for word in words]  # the port may be in use
    if (
        ON_CARDS and "--device" in words
    ):  # a process of its own: virtual GPUs of another command break backward on cards
        code = subprocess.run([sys.executable, "-m", "devexplorer.core.cli", *words], check=False).returncode
    else:
        code = main(words)
    out, err = capfd.readouterr()
    assert code in ((0, 1) if words[0] == "doctor" or words[:2] == ["fleet", "check"] else (0,)), err
    assert "Traceback" not in err
    if block is not None:  # the rest depends on the speed of the machine
        _, _, shown = block.text.partition("\n")
        table = shown.partition("\nwhat would help")[0]
        assert out.startswith(table)


TARGETS = sorted(
    {span.text for span in spans() if re.fullmatch(r"(transformers|torchvision|net\.py):\w+(\?[\w=&]+)?", span.text)}
)


@pytest.mark.parametrize("target", TARGETS)
def test_every_model_that_is_named_opens(target: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    library = target.partition(":")[0]
    if library in ("transformers", "torchvision") and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    if "?" in target and library == "net.py":
        text = (
            "from torch import nn\n\ndef Net(width=12, deep=False):\n    return nn.Sequential(*[nn.Linear(width,"
            " width)] * (1 + deep))\n"
        )
        (folder / "net.py").write_text(text)
    assert main(["place", target]) == 0, capfd.readouterr().err


def test_the_test_in_the_doctors_page_fails_as_the_page_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = next(
        block.text for block in blocks() if block.page.name == "doctor.md" and "def test_placement" in block.text
    )
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("net", None)  # of another test
    names: dict[str, Any] = {}
    exec(code, names)
    try:
        with pytest.raises(AssertionError, match="unregistered-tensor"):
            names["test_placement"]()
    finally:
        del sys.modules["net"]


class Takes(nn.Module):
    """A model whose forward needs inputs that cannot be guessed."""

    def forward(self, batch: dict[str, torch.Tensor], *, scale: float) -> torch.Tensor:
        return batch["x"] * scale


def test_the_wrapper_in_the_doctors_page_makes_such_a_model_runnable() -> None:
    code = next(block.text for block in blocks() if block.page.name == "doctor.md" and "class Wrapped" in block.text)
    names: dict[str, Any] = {"nn": nn, "Net": Takes}
    exec(code, names)
    assert torch.equal(names["Wrapped"]()(torch.ones(3)), torch.full((3,), 2.0))


def test_every_block_of_python_has_its_test() -> None:
    """tests/core/doctor/test_docs.py examines those of the doctor's pages."""
    others = [block.place for block in blocks() if block.language == "python" and block.page.parent.name != "doctor"]
    assert len(others) == 3, f"a new block needs a test here: {others}"
    assert {place.partition(":")[0] for place in others} == {"docs/doctor.md"}
