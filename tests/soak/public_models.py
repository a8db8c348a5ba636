"""Runs the doctor on models of public repositories, with `--train`, and counts the findings, so that a person can
review each line.

    python tests/soak/public_models.py CLONES [--only OWNER/NAME] [--json FILE]

CLONES has a folder OWNER+NAME for each repository of `public_models.json`, which says how each model is built; missing
repositories are skipped. They need einops, einx, scipy, PyWavelets, timm, ema-pytorch, local-attention (which needs
hyper-connections) and torch-einops-utils; packages that they import but do not need are empty stubs. Their code runs
with your permissions: read it first. It cannot start processes (one of them installs packages when imported)."""

from __future__ import annotations

import argparse
import ast
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections import Counter
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn

TABLE = Path(__file__).with_suffix(".json")
LIMIT_SECONDS = 180
REFUSED = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")


class _Empty(type):
    """A class that accepts any call, attribute and item."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *given: Any, **named: Any) -> Any:
        import torch

        return (
            given[0]
            if len(given) == 1 and callable(given[0]) and not isinstance(given[0], type)
            else torch.nn.Identity()
        )


class _EmptyModule(types.ModuleType):
    __path__: Sequence[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "10.20.0"
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty("Empty", (), {})


class EmptyPackages:
    """Provides empty packages with these names."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        empty = any(name == one or name.startswith(f"{one}.") for one in self._names)
        return ModuleSpec(name, self, is_package=True) if empty else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """See `importlib.abc.Loader`."""
        return _EmptyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """See `importlib.abc.Loader`."""


def refuse(event: str, given: tuple[Any, ...]) -> None:
    """An audit hook: fetched code must not start processes."""
    if event in REFUSED:
        raise FileNotFoundError(f"{event}: no process is started here")


def classes_of(file: str, setting: str) -> dict[str, Any]:
    """The imports, classes and functions of a script that would start training, with a few variables that it needs."""
    import torch

    module = types.ModuleType(f"script_{Path(file).stem}")
    module.__file__ = os.path.abspath(file)
    sys.modules[module.__name__] = module
    names = vars(module)
    names.update(types=types, torch=torch)
    exec(setting, names)
    if "opt" in names:
        names["img_shape"] = (names["opt"].channels, names["opt"].img_size, names["opt"].img_size)
    for node in ast.parse(Path(file).read_text()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)):
            exec(compile(ast.Module([node], []), module.__file__, "exec"), names)
    return names


class Fetched:
    """A model of a repository, as a builder for the doctor."""

    seeded = True

    def __init__(self, entry: dict[str, Any]) -> None:
        self.title = entry["make"]
        self._entry = entry
        self._names: dict[str, Any] | None = None

    def build(self, seed: int) -> Any:
        """Build it with this seed."""
        import torch

        from devexplorer.core.base import BadInput

        torch.default_generator.manual_seed(seed)
        before = self._entry["before"]
        try:
            if self._names is None and before.startswith("CLASSES "):
                _, file, setting = before.split(" ", 2)
                self._names = classes_of(file, setting)
            elif self._names is None:
                self._names = {"__name__": "before"}
                exec(before, self._names)
            made = eval(self._entry["make"], self._names)
            return made() if isinstance(made, type) else made
        except Exception as error:
            raise BadInput(f"not made: {type(error).__name__}: {error}") from error

    build_on_cpu = build

    def specs(self) -> None:
        """Only the table knows."""


def examined(entry: dict[str, Any]) -> dict[str, Any]:
    """The diagnosis of one model, or the error."""
    import msgspec

    from devexplorer.core.doctor.examine import Doctor
    from devexplorer.core.doctor.subject import picked
    from devexplorer.core.records import DoctorRequest

    began = time.monotonic()
    wanted = ("problems", "notes", "unchecked", "no_gradient", "uncompiled", "operations")
    said: dict[str, Any] = {"repository": entry["repository"], "make": entry["make"]}
    try:
        request = DoctorRequest(source=entry["make"], train=True, inputs=entry["inputs"])
        diagnosis = Doctor(Fetched(entry), picked("vgpu:0"), request).examine()
        said |= {key: msgspec.to_builtins(getattr(diagnosis, key)) for key in wanted}
    except Exception as error:
        said["failed"] = f"{type(error).__name__}: {error}"
    return said | {"seconds": round(time.monotonic() - began, 1)}


def repository(clones: Path, entries: Sequence[dict[str, Any]], out: Path) -> None:
    """Every model of one repository, in this process."""
    import torch

    from devexplorer.core.virtual.backend import add_virtual_gpus

    def late(number: int, frame: object) -> NoReturn:
        raise TimeoutError(f"not ready after {LIMIT_SECONDS} s")

    torch.set_num_threads(1)
    add_virtual_gpus("2x Tesla T4")
    sys.meta_path.insert(0, EmptyPackages({name for entry in entries for name in entry["empty"]}))
    sys.addaudithook(refuse)
    signal.signal(signal.SIGALRM, late)
    path, known = list(sys.path), set(sys.modules)
    out.touch()
    for entry in entries:
        root = clones / entry["repository"].replace("/", "+")
        folder = root / entry["folder"]
        os.chdir(folder)
        sys.path[:] = [str(folder), str(root), *path]
        for name in set(sys.modules) - known:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(clones)):
                del sys.modules[name]
        signal.alarm(LIMIT_SECONDS)
        said = examined(entry)
        signal.alarm(0)
        with out.open("a") as file:
            file.write(json.dumps(said) + "\n")


def _where(finding: dict[str, Any]) -> tuple[str, str, str, int]:
    """Findings with the same key are merged."""
    return finding["severity"], finding["rule"], finding["file"], finding["line"]


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The findings, each line of code once, and the counts."""
    ran = [row for row in rows if "failed" not in row]
    found, noted = ({_where(one): one for row in ran for one in row[kind]} for kind in ("problems", "notes"))
    lines = [f"{key[0]} {key[1]} {key[2]}:{key[3]} {one['message']}" for key, one in sorted((found | noted).items())]
    lines += [
        f"not checked: {row['repository']} {row['make']}: {one['what']}: {one['reason']}"
        for row in ran
        for one in row["unchecked"]
    ]
    lines += [f"failed: {row['repository']} {row['make']}: {row['failed']}" for row in rows if "failed" in row]
    rules = Counter((key[0], key[1]) for key in found | noted)
    lines += [f"{count:4} {severity} {rule}" for (severity, rule), count in sorted(rules.items())]
    clean = sum(not row["problems"] and not row["unchecked"] for row in ran)
    told = (
        f"{len(ran)} models of {len({row['repository'] for row in ran})} repositories: {clean} clean, {len(found)}"
        " lines with a finding"
    )
    return "\n".join(
        [*lines, f"{told}, {len(noted)} notes, {sum(bool(row['unchecked']) for row in ran)} with something unchecked"]
    )


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", type=Path)
    parser.add_argument("--only", help="one repository, OWNER/NAME, in this process")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--json", type=Path, default=Path("public_models.jsonl"))
    given = parser.parse_args()
    clones, out = given.clones.resolve(), given.json.resolve()
    table = [
        one for one in json.loads(given.table.read_text()) if (clones / one["repository"].replace("/", "+")).is_dir()
    ]
    if given.only:
        repository(clones, [one for one in table if one["repository"] == given.only], out)
        return 0
    out.unlink(missing_ok=True)
    for name in dict.fromkeys(one["repository"] for one in table):
        options = ["--only", name, "--table", str(given.table.resolve()), "--json", str(out)]
        command = [sys.executable, "-W", "ignore", __file__, str(clones), *options]
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode:
            print(f"{name}: the process failed", file=sys.stderr)
    print(report([json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
