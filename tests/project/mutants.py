"""Puts small faults into the program, one at a time, and says which of them no test sees.

    python tests/project/mutants.py FILE.json [--count 200] [--seed 1] [--run N] [--limit SECONDS] [--list]

FILE.json keeps the faults and their results: run again, it goes on where it was ended; with --run N it stops after so
many. The faults are chosen by the seed from all modules, each kind as often: a comparison flipped, a number or truth
value changed, a condition negated, a result replaced by None, an arithmetic operator swapped, a statement removed. None
is made in docstrings, annotations, lines for the log, `__repr__`, f-strings and imports for types.

Each is put into a copy of what is committed. Run are the tests of the mirrored folder that import the module, then the
others there, and the scenarios, too, for folders that all features use: until one fails (killed), all have passed
(survived) or the limit is over (timed out: a loop that does not end, which counts as seen, or slow tests, which do
not). A test that fails is run again without the fault; one that fails then as well does not count, and is left out from
there on. What a test starts in a Python of its own without PYTHONPATH has the program of the checkout, without the
fault. Tests see only processes of their own, where the system allows it (`unshare`), and have limited memory."""

from __future__ import annotations

import argparse
import ast
import copy
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("core", "gui")
KERNEL = ("base", "records", "devices", "virtual", "models", "workspace", "telemetry", "benchmark", "commands",
          "engine", "session")  # fmt: skip
"""Folders of `core` that the scenarios exercise."""
LIMIT_S, AGAIN_S = 600.0, 120.0
MEMORY_KIB = 12 << 20
LOGS = ("Log", "log", "_log", "debug", "info", "warning", "exception")
"""Calls whose arguments are texts for the log."""
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
KINDS = ("comparison", "constant", "condition", "return", "arithmetic", "statement")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


class Mutant(NamedTuple):
    """One fault."""

    kind: str
    file: str
    line: int
    start: int
    end: int
    """Bytes of the file that are replaced."""
    before: str
    after: str


# --- which faults there are


class _Finder(ast.NodeVisitor):
    """Collects every fault that a module can have."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.found = file, list[Mutant]()
        self._data = text.encode()
        self._lines = [0]
        for line in self._data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def _add(self, kind: str, node: Any, after: str) -> None:
        start = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[node.end_lineno - 1] + node.end_col_offset
        before = self._data[start:end].decode()
        self.found.append(Mutant(kind, self.file, node.lineno, start, end, before, after))

    def _all(self, nodes: list[Any]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name != "__repr__":
            self._all([*node.args.defaults, *node.args.kw_defaults, *node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._all(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._all([node.value])

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Python 3.11 does not know where the parts of an f-string are."""

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test) or "__name__" in ast.unparse(node.test):
            self._all(node.orelse)
            return
        self._condition(node)

    def visit_While(self, node: ast.While) -> None:
        if isinstance(node.test, ast.Constant):
            self._all(node.body)
        else:
            self._condition(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node)

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self._add("condition", node.test, f"(not ({ast.unparse(node.test)}))")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            flipped = copy.copy(node)
            flipped.ops = [COMPARED[type(node.ops[0])]()]
            self._add("comparison", node, ast.unparse(flipped))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        swapped = CALCULATED.get(type(node.op))
        if swapped is not None and not any(map(_is_text, (node.left, node.right))):
            other = copy.copy(node)
            other.op = swapped()
            self._add("arithmetic", node, f"({ast.unparse(other)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add("constant", node, f"({node.value!r} + 1)")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._add("return", node, "return None")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if not _logs(node):
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not any(map(_logs, ast.walk(node))):
            self._add("statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("statement", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add("statement", node, "pass")
        self.generic_visit(node)


def _logs(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in LOGS


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Every fault that there can be in a module."""
    finder = _Finder(file, text)
    finder.visit(ast.parse(text))
    return finder.found


def chosen(count: int, seed: int) -> list[Mutant]:
    """So many, of each kind as many; the same for the same seed and program."""
    by_kind: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for path in sorted(path for top in PRODUCT for path in (ROOT / top).rglob("*.py")):
        for mutant in mutants_of(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")):
            by_kind[mutant.kind].append(mutant)
    chance = random.Random(seed)
    shuffled = [chance.sample(found, min(count, len(found))) for found in by_kind.values()]
    return [mutant for together in zip(*shuffled, strict=False) for mutant in together][:count]


# --- which tests see them


def mirrored(file: str) -> Path | None:
    """The nearest folder of tests, from the root, for a module; None where there is only that of all."""
    folder = Path("tests") / Path(file).parent
    while len(folder.parts) > 2:
        if any((ROOT / folder).glob("test_*.py")):
            return folder
        folder = folder.parent
    return None


def steps(file: str) -> Iterator[list[str]]:
    """The arguments of pytest for a module, one run after the other: what is likely to see a fault comes first."""
    name = ".".join(("devexplorer", *Path(file).with_suffix("").parts)).removesuffix(".__init__")
    folder = mirrored(file)
    where = ROOT / (folder or "tests")
    near = [path for path in sorted(where.rglob("test_*.py")) if re.search(rf"\b{name}\b", path.read_text("utf-8"))]
    names = [str(path.relative_to(ROOT)) for path in near]
    if names:
        yield names
    if folder is not None:
        yield [str(folder), *(f"--ignore={name}" for name in names)]
    if Path(file).parts[1] in KERNEL and file.startswith("core/"):
        yield ["tests/scenarios"]


class Copy:
    """A copy of the program that faults are put into."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "program"
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(self.root, filter="data")
        homes = {name: str(folder / name) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
        for home in homes.values():
            Path(home).mkdir()
        links = str(self.root / ".ci" / "types")
        self._environment = {**os.environ, **homes, "PYTHONPATH": links, "QT_QPA_PLATFORM": "offscreen"}
        self._prefix = ["sh", "-c", f'ulimit -d {MEMORY_KIB}; "$@"; exit $?', "sh"]
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if (
            shutil.which("unshare")
            and subprocess.run([*apart, "true"], capture_output=True, check=False).returncode == 0
        ):
            self._prefix = [*apart, *self._prefix]
        self._changes = 0

    def write(self, file: str, data: bytes) -> None:
        """Give a module another text, with a time that no compiled code of it has."""
        self._changes += 1
        (self.root / file).write_bytes(data)
        now = int(time.time()) + self._changes
        os.utime(self.root / file, (now, now))

    def test(self, arguments: list[str], limit_s: float) -> tuple[int | None, str]:
        """Run pytest until a test fails: its exit code, None when the time was over; and what it printed."""
        command = [*self._prefix, sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
        with subprocess.Popen(
            command, cwd=self.root, env=self._environment, text=True, errors="replace", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as running:  # fmt: skip
            try:
                output, _ = running.communicate(timeout=max(limit_s, 1.0))
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                return None, ""
        return running.returncode, output


TESTS_FAILED, INTERRUPTED, NO_TESTS = 1, 2, 5
"""Exit codes of pytest; it is interrupted by a file that cannot be imported."""


def tried(mutant: Mutant, place: Copy, unusable: set[str], limit_s: float) -> dict[str, Any]:
    """Put it in, run the tests, take it out."""
    began = time.monotonic()
    original = (place.root / mutant.file).read_bytes()
    if original[mutant.start : mutant.end].decode() != mutant.before:
        return {"result": "gone"}
    faulty = original[: mutant.start] + mutant.after.encode() + original[mutant.end :]
    try:
        result, by = _run(mutant.file, (original, faulty), place, unusable, began + limit_s)
    finally:
        place.write(mutant.file, original)
    return {"result": result, "by": by, "seconds": round(time.monotonic() - began, 1)}


def _run(
    file: str, texts: tuple[bytes, bytes], place: Copy, unusable: set[str], until: float
) -> tuple[str, str | None]:
    original, faulty = texts
    for arguments in steps(file):
        while True:
            place.write(file, faulty)
            left_out = [f"--deselect={test}" for test in sorted(unusable)]
            code, output = place.test([*arguments, *left_out], until - time.monotonic())
            if code is None:
                return "timed out", None
            if code in (0, NO_TESTS):
                break
            failed = FAILED.search(output)
            if failed is None:  # pytest itself ended: the fault killed its process, or conftest could not be imported
                return "killed", output[-300:]
            place.write(file, original)
            again, _ = place.test([failed[1]], AGAIN_S)
            if again not in (TESTS_FAILED, INTERRUPTED) or failed[1] in unusable:
                return "killed", failed[1]
            unusable.add(failed[1])
    return "survived", None


def main() -> int:
    """Choose or go on, run, print a line for each and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", type=int, default=sys.maxsize, help="try so many now")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one")
    parser.add_argument("--list", action="store_true", help="only write and print the faults")
    given = parser.parse_args()
    if given.file.exists():
        kept = json.loads(given.file.read_text(encoding="utf-8"))
    else:
        kept = {"unusable": [], "mutants": [one._asdict() for one in chosen(given.count, given.seed)]}
    waiting = [entry for entry in kept["mutants"] if "result" not in entry][: 0 if given.list else given.run]
    _write(given.file, kept)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place, unusable = Copy(Path(folder)), set(kept["unusable"])
        for entry in waiting:
            entry |= tried(Mutant(**entry), place, unusable, given.limit)
            kept["unusable"] = sorted(unusable)
            _write(given.file, kept)
            print(_line(entry), flush=True)
    if given.list:
        for entry in kept["mutants"]:
            print(_line(entry))
    results = Counter(entry.get("result", "waiting") for entry in kept["mutants"])
    print(", ".join(f"{number} {result}" for result, number in results.most_common()))
    return 0


def _write(file: Path, kept: dict[str, Any]) -> None:
    temporary = file.with_name(f"{file.name}.part")
    temporary.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(file)


def _line(entry: dict[str, Any]) -> str:
    before, after = (" ".join(entry[key].split())[:60] for key in ("before", "after"))
    result = f"{entry.get('result', 'waiting')} {entry.get('seconds', '')}".rstrip()
    return f"{result:16} {entry['file']}:{entry['line']} {entry['kind']}: {before} -> {after}"


if __name__ == "__main__":
    sys.exit(main())
