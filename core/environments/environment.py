"""The Python environments of this machine as records: what was found, what one of them has, why it cannot serve, how a
process runs in it. Any thread."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

import devexplorer
from devexplorer.core.base import BadInput, ProgressMonitor
from devexplorer.core.environments import finding
from devexplorer.core.environments import probe as probing
from devexplorer.core.environments.finding import short
from devexplorer.core.environments.records import Environment as Environment
from devexplorer.core.environments.records import Probe as Probe
from devexplorer.core.environments.records import ProbedDevice as ProbedDevice

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 4)
OLDEST_NUMPY = (1, 26)
"""An older one is not replaced as other packages are: torch was built for it."""

LEFT_OUT = ("PYTHONHOME", "PYTHONPATH", "PYTHONEXECUTABLE", "PYTHONPLATLIBDIR", "__PYVENV_LAUNCHER__")
"""Variables that tell one Python where its own files are, and would tell it to another."""


def find(folder: Path | str = "", environ: Mapping[str, str] | None = None) -> tuple[Environment, ...]:
    """The environments that concern somebody who works in `folder`: first those that can serve, as far as their files
    tell, and of these the nearest. This Python is always one of them. Reads many files."""
    rows = finding.find(str(folder), dict(os.environ if environ is None else environ))
    found = [msgspec.convert(row, Environment) for row in rows]
    if not any(is_own(row.python) for row in found):
        found.append(_this())
    return tuple(sorted(found, key=lambda one: not is_likely(one)))


def _this() -> Environment:
    """This Python: DevExplorer's own, unless it was started in one where DevExplorer is not installed."""
    version, environ = _dotted(sys.version_info[:3]), dict(os.environ)
    torch = finding.torch_of(sys.prefix, version, environ)
    lent = hasattr(devexplorer, "__start__")  # `bootstrap`
    place = sys.executable if sys.prefix == sys.base_prefix else sys.prefix
    kind, label = ("given", finding.short(place, environ)) if lent else ("own", "DevExplorer's own")
    return Environment(sys.executable, sys.prefix, kind, label, version, torch)


def is_likely(environment: Environment) -> bool:
    """Whether it can be the engine's, by its files alone."""
    old = environment.version and numbers(environment.version)[:2] < OLDEST_PYTHON
    return not old and numbers(environment.torch or "0") >= OLDEST_TORCH


def given(path: str) -> Environment:
    """The environment that the user named, by its folder or its interpreter. Raises `BadInput`."""
    if not os.path.exists(os.path.expanduser(path)):
        raise BadInput(f"there is no file {path}")
    python = finding.interpreter(path)
    if not python:
        folder = os.path.isdir(os.path.expanduser(path))
        raise BadInput(f"there is no Python in the folder {path}" if folder else f"{path} is not a program")
    prefix = os.path.dirname(os.path.dirname(python))
    version = finding.version_of(python)
    torch = finding.torch_of(prefix, version, dict(os.environ))
    return Environment(python, prefix, "given", finding.short(python, dict(os.environ)), version, torch)


def is_own(python: str) -> bool:
    """Whether it is the interpreter of this process."""
    prefix = os.path.dirname(os.path.dirname(python))
    in_venv = sys.prefix != sys.base_prefix and os.path.realpath(prefix) == os.path.realpath(sys.prefix)
    return python == sys.executable or in_venv


def probe(
    python: str,
    limit_s: float = probing.LIMIT_S,
    *,
    with_torch: bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> Probe:
    """Start that Python and ask it; never raises for what it does. Without torch it takes a tenth of a second, and
    devices are not known. `stop` says that nobody waits any longer."""
    source = Path(probing.__file__).read_text(encoding="utf-8")
    answer = probing.ask(python, source, limit_s, environ_for(python), with_torch=with_torch, stop=stop)
    return as_probe(answer)


def as_probe(answer: object) -> Probe:
    """The record of an answer, whoever gave it."""
    try:
        return msgspec.convert(answer, Probe)
    except msgspec.ValidationError:
        return Probe(problem="what it answered is not understood")


def environ_for(python: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a process in that Python gets: those of this one, without what is meant for this Python only.

    Environment modules say by PYTHONPATH what is loaded, so with them it stays.
    """
    variables = dict(os.environ if environ is None else environ)
    if is_own(python):
        return variables
    kept = ("PYTHONPATH",) if variables.get("LOADEDMODULES") else ()
    return {name: value for name, value in variables.items() if name not in LEFT_OUT or name in kept}


def refusal(probe: Probe) -> str | None:
    """Why that Python cannot be the engine's, in one line; None: it can."""
    if not probe.version:
        return probe.problem or "it does not say which Python it is"
    if probe.implementation != "cpython":
        return f"it is {probe.implementation}; the engine needs CPython"
    if numbers(probe.version) < OLDEST_PYTHON:
        return f"it is Python {probe.version}; the engine needs {_dotted(OLDEST_PYTHON)} or newer"
    if probe.torch_problem:
        return probe.torch_problem
    if probe.problem:
        return probe.problem
    if not probe.torch:
        return "torch is not installed there"
    for name, version, oldest in (
        ("torch", probe.torch, OLDEST_TORCH),
        ("numpy", probe.packages.get("numpy", ""), OLDEST_NUMPY),
    ):
        if numbers(version) and numbers(version) < oldest:
            return f"its {name} is {version}; the engine needs {_dotted(oldest)} or newer"
    return None


def refused(python: str, reason: str) -> BadInput:
    """The error for a Python that cannot be used."""
    return BadInput(f"{python} cannot be used: {reason}")


def numbers(version: str) -> tuple[int, ...]:
    """`2.4.1+cu121` as (2, 4, 1): enough to compare with the oldest that will do."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0])[:3])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def named(path: str) -> str | None:
    """The interpreter that the user named, by its folder or itself; None: it is the one that runs this. Raises
    `BadInput`."""
    python = given(path).python
    return None if is_own(python) else python


def start(path: str, progress: ProgressMonitor) -> tuple[list[str], dict[str, str]]:
    """The command that runs one of our modules there, when the module's name and its arguments follow, and its
    variables. Raises `BadInput` for a Python that cannot be used, `Unavailable` for want of a package or of space."""
    from devexplorer.core.environments.packages import prepare  # importlib.metadata, tarfile: only for this

    python = given(path).python
    return prepare(python, progress), environ_for(python)


def described() -> list[dict[str, str]]:
    """Those of this machine, as `--python` takes them; the home folder is `~`."""
    return [
        {
            "path": short(found.python, dict(os.environ)),
            "kind": found.kind,
            "version": found.version,
            "torch": found.torch,
        }
        for found in find()
    ]
