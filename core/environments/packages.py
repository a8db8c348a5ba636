"""Makes another Python ready to run our code: asks it what it has, and puts our code and the packages that it lacks
into folders of the cache; nothing is installed into it. Any thread; copies files and starts pip.

First what we have ourselves and what fits that Python is copied, which needs no network. The rest is fetched by a pip:
that of the environment, or uv, or the one that every Python brings along for its virtual environments.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, Unavailable, list_text, module_prefix
from devexplorer.core.environments import code_cache
from devexplorer.core.environments import probe as probing
from devexplorer.core.environments.code_cache import kept
from devexplorer.core.environments.environment import Probe, environ_for, is_own, numbers, refusal, refused
from devexplorer.core.environments.environment import probe as ask

NEEDED = {
    "msgspec": "0.20",
    "psutil": "6",
    "numpy": "1.26",
    "nvidia-ml-py": "12.560",
    "platformdirs": "4",
    "safetensors": "0.5",
    "rich": "13",
    "markdown-it-py": "2.2",  # this and the next two: what rich needs
    "mdurl": "0.1",
    "pygments": "2.13",
}
"""With the oldest version that will do."""
KIND = "packages"
INSTALL_S = 180.0
"""numpy is 20 MB."""
ASK_S = 0.1


START_S = 15.0
"""For Python to start and say what it has, without torch."""


def prepare(python: str, progress: ProgressMonitor = NO_PROGRESS, *, limit_s: float = START_S) -> list[str]:
    """The command that runs one of our modules there, when the module's name and its arguments follow. What it reports
    is only what takes long: nothing where all is there.

    Raises `BadInput` for a Python that cannot be used, `Unavailable` when nothing can be kept or fetched, `Cancelled`.
    """
    if is_own(python):
        return module_prefix()
    about = ask(python, limit_s, with_torch=False, stop=progress.cancelled)
    progress.stop_if_cancelled("nothing has changed")
    if (reason := refusal(about)) is not None:
        raise refused(python, reason)
    bootstrap = code_cache.folder() / code_cache.BOOTSTRAP
    return [python, "-P", str(bootstrap), *provide(python, about, progress).options()]


class Folders(NamedTuple):
    """What goes before, and what behind the packages of an environment; None: nothing."""

    before: Path | None = None
    after: Path | None = None

    def options(self) -> tuple[str, ...]:
        """As `bootstrap.py` takes them."""
        pairs = (("--before", self.before), ("--after", self.after))
        return tuple(f"{name}={folder}" for name, folder in pairs if folder is not None)


def missing(probe: Probe) -> tuple[str, ...]:
    """What is not there."""
    return tuple(name for name in NEEDED if name not in probe.packages and name not in too_old(probe))


def too_old(probe: Probe) -> tuple[str, ...]:
    """What is there in a version that will not do."""
    there = dict(probe.packages)
    if "pynvml" in there:  # another package with the module that nvidia-ml-py brings
        there.setdefault("nvidia-ml-py", there["pynvml"])
    return tuple(name for name, least in NEEDED.items() if numbers(there.get(name, least)) < numbers(least))


class Need(NamedTuple):
    """A folder that an environment lacks."""

    name: str
    wanted: tuple[str, ...]
    """As pip takes them: `numpy>=1.26`."""


def needs(probe: Probe) -> tuple[Need | None, Need | None]:
    """What has to go before, and what behind the packages of an environment; None: nothing."""
    return _need(probe, too_old(probe)), _need(probe, missing(probe))


def provide(python: str | None, probe: Probe, progress: ProgressMonitor = NO_PROGRESS) -> Folders:
    """The folders with all that it lacks, made if they are not there. `python` is that interpreter; None: it is on
    another machine, and what is fetched is for the platform that `probe` names.

    Raises `Unavailable` with the reason, and `Cancelled`.
    """
    return Folders(*(None if need is None else folder(python, probe, need, progress) for need in needs(probe)))


def folder(python: str | None, probe: Probe, need: Need, progress: ProgressMonitor = NO_PROGRESS) -> Path:
    """One of those folders."""
    return kept(KIND, need.name, partial(_fill, python, probe, need.wanted, progress))


def _need(probe: Probe, names: Sequence[str]) -> Need | None:
    if not names:
        return None
    wanted = tuple(f"{name}>={NEEDED[name]}" for name in names)
    threads = "t" if probe.free_threaded else ""
    tag = f"cp{_short(probe)}{threads}-{probe.platform}-{probe.libc}".replace(" ", "")
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
    return Need(re.sub(r"[^\w.-]", "_", f"{tag}-{digest}"), wanted)


def _fill(python: str | None, probe: Probe, wanted: Sequence[str], progress: ProgressMonitor, folder: Path) -> None:
    progress.report(0.2, f"adding what Python {probe.version} there lacks")
    rest = [entry for entry in wanted if not _copy(entry.partition(">")[0], probe, folder)]
    if not rest:
        return
    names = list_text([entry.partition(">")[0] for entry in rest])
    progress.report(0.5, f"fetching {names} for Python {probe.version}")
    reason = "no pip was found"
    for command in _installers(python, probe):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            failure = _run([*command, "--target", place, *rest], python, progress)
            if failure is None:
                for path in Path(place).iterdir():
                    if path.name != "bin":
                        path.rename(folder / path.name)
                return
        reason = failure
    raise Unavailable(f"{names} could not be fetched for Python {probe.version}: {reason}")


# --- from here ----------------------------------------------------------------------------------------------------


def _copy(name: str, probe: Probe, folder: Path) -> bool:
    """Copy a package of ours, if it is there, new enough, and fits."""
    try:
        ours = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    tags = re.findall(r"(?m)^Tag: (\S+)$", ours.read_text("WHEEL") or "")
    files = ours.files
    if not files or numbers(ours.version) < numbers(NEEDED[name]) or not _fits(tags, probe):
        return False
    for file in files:
        source = Path(str(ours.locate_file(file)))
        if ".." in file.parts or file.is_absolute() or "__pycache__" in file.parts or not os.path.isfile(source):
            continue  # programs of the package, and what Python has written itself
        target = folder.joinpath(*file.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return True


def _fits(tags: Sequence[str], probe: Probe) -> bool:
    """Whether what these wheels hold can be used in that Python: they have no compiled code, or it is as this one."""
    if all(tag.endswith("-none-any") for tag in tags):
        return True
    ours = probing.about_python()
    same = all(getattr(probe, name) == ours[name] for name in ("platform", "free_threaded"))
    versions = numbers(probe.version)[:2], numbers(str(ours["version"]))[:2]
    return same and versions[0] == versions[1] and _glibc(probe.libc) >= _glibc(str(ours["libc"]))


def _glibc(libc: str) -> tuple[int, ...]:
    name, _, version = libc.partition(" ")
    return numbers(version) if name == "glibc" else ()


# --- from an index ------------------------------------------------------------------------------------------------


def _installers(python: str | None, probe: Probe) -> Iterator[list[str]]:
    """Commands that install into a folder, the best first."""
    options = ["install", "--no-deps", "--only-binary", ":all:", "--quiet"]
    pip = [*options, "--no-input", "--disable-pip-version-check", "--no-warn-script-location"]
    runs = python or sys.executable
    there = [] if python is not None else _elsewhere(probe)
    if probe.pip if python is not None else _has_pip():
        yield [runs, "-P", "-m", "pip", *pip, *there]
    uv = shutil.which("uv")
    if uv is not None and python is not None:
        yield [uv, "pip", *options, "--python", python]
    bundled = importlib.util.find_spec("ensurepip")
    for folder in bundled.submodule_search_locations or () if bundled is not None else ():
        for wheel in sorted(Path(folder, "_bundled").glob("pip-*.whl")):
            yield [runs, "-P", str(wheel / "pip"), *pip, *there]


def _has_pip() -> bool:
    try:
        importlib.metadata.distribution("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True  # not by its module: setuptools puts away distutils in a process that looks for that


def _elsewhere(probe: Probe) -> list[str]:
    """Options of pip for a Python that is not the one that runs it."""
    system, _, machine = probe.platform.partition("-")
    platforms = [probe.platform.replace("-", "_").replace(".", "_")]
    if system == "linux":
        minor = (*_glibc(probe.libc), 0, 0)[1]
        platforms = [f"manylinux_2_{number}_{machine}" for number in (28, 27, 24) if minor >= number]
        platforms += [f"manylinux2014_{machine}"]  # pip knows the older ones that this stands for
    options = ["--implementation", "cp", "--python-version", ".".join(probe.version.split(".")[:2])]
    if probe.free_threaded:
        options += ["--abi", f"cp{_short(probe)}t", "--abi", "none"]
    return options + [word for platform in platforms for word in ("--platform", platform)]


def _run(command: Sequence[str], python: str | None, progress: ProgressMonitor) -> str | None:
    """Run an installer; the reason when it failed. Raises `Cancelled`, with the process ended."""
    variables = dict(os.environ) if python is None else environ_for(python)
    variables |= {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    end = time.monotonic() + INSTALL_S
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables, start_new_session=True
            )
        except OSError as error:
            return f"{command[0]} cannot be started: {error.strerror}"
        try:
            while (code := process.poll()) is None:
                progress.stop_if_cancelled("nothing was installed")
                if time.monotonic() > end:
                    return f"pip was not ready after {INSTALL_S:g} s"
                try:
                    process.wait(ASK_S)
                except subprocess.TimeoutExpired:
                    pass
        finally:
            _kill(process)
        if code == 0:
            return None
        output.seek(0)
        lines = output.read(1 << 20).decode("utf-8", "replace").strip().splitlines()
        errors = [line for line in lines if line.lower().startswith("error")] or lines
        return errors[-1].strip()[:300] if errors else f"pip ended with exit code {code}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    except (ProcessLookupError, PermissionError):
        pass


def _short(probe: Probe) -> str:
    """`311`."""
    return "".join(probe.version.split(".")[:2])
