"""torch's own operator database (`op_db`) on a virtual GPU against the CPU: forward, gradients, in-place, `out=`.

    python tests/soak/op_db/run.py [--part N] [--only NAME] [--dtypes float32,…] [--samples 10] [--json FILE]

Needs `expecttest`, which torch's test package imports. Every entry runs in a child process with limits in time and
memory, so that an entry that ends its process, or hangs, affects only itself and is reported. Prints a table of counts,
then every difference: those of `known.py` with their reason, all others as unexplained; returns 1 when there are any.
`--part 10` takes every tenth case and those that failed before. "close": within torch.testing's tolerances; "rounded":
as close to double precision as the CPU; "same error": both raise the same kind of error; "not dense": the sample is
sparse or nested, which virtual GPUs refuse."""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any

from known import reason

CHILD = Path(__file__).with_name("compare.py")
LIMIT_SECONDS = 240.0
"""For one entry in one dtype; loaded machines included."""
START_SECONDS = 300.0
PHASES = ("forward", "inference mode", "gradient", "second gradient", "lazy views", "in-place", "out=")
OUTCOMES = ("equal", "close", "rounded", "same error", "known", "unexplained", "not dense")
COVERS = {
    "conj", "resolve_conj", "resolve_neg", "imag", "view_as_real", "linalg.pinv", "linalg.matrix_rank",
    "linalg.solve_triangular", "matmul",
    "einsum", "fft.fft", "unbind_copy", "as_strided", "sum", "addmm", "gather", "nn.functional.conv2d",
    "native_layer_norm",
    "nn.functional.scaled_dot_product_attention",
}  # fmt: skip
"""Entries in every part: earlier failures, and the most used of each kind."""

Case = tuple[str, str]


class Child:
    """A process that compares one case at a time."""

    def __init__(self, samples: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), str(samples)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), name="op-db-reader", daemon=True).start()
        answer = self._answer(START_SECONDS)
        if isinstance(answer, str):
            self.end()
            raise SystemExit(f"torch's operator database cannot be loaded: {answer}")
        self.cases: list[Case] = [(name, dtype) for name, dtype in answer]

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self, seconds: float) -> Any:
        """The next line; a string says why there is none."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return f"no answer within {seconds:.0f} s"
        if line:
            return json.loads(line)
        return f"the process ended with {self._process.wait()}"

    def ask(self, case: Case) -> Any:
        """Compare a case."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        return self._answer(LIMIT_SECONDS)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate()


class Table:
    """What was found, by phase and dtype."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Counter[str]]] = {}
        self.entries: Counter[str] = Counter()
        self.known: dict[str, Counter[str]] = {}
        self.unexplained: list[str] = []

    def add(self, case: Case, found: Any) -> None:
        """Add a case's answer."""
        name, dtype = case
        self.entries[dtype] += 1
        if isinstance(found, str) or "failed" in found:
            self.unexplained.append(f"{name} {dtype}: {found if isinstance(found, str) else found['failed']}")
            return
        for phase, counts in found["counts"].items():
            total = self.counts.setdefault(dtype, {}).setdefault(phase, Counter())
            total.update({key: number for key, number in counts.items() if key != "different"})
            for words, number in found["differences"].get(phase, {}).items():
                why = reason(name, phase, words)
                total["known" if why else "unexplained"] += number
                if why:
                    self.known.setdefault(why, Counter())[name] += number
                else:
                    self.unexplained.append(f"{name} {dtype} {phase} ({number}): {words}")

    def text(self) -> str:
        """The table, and every difference."""
        lines = [f"| dtype | phase | samples | {' | '.join(OUTCOMES)} |", f"|---|---|{'---|' * (1 + len(OUTCOMES))}"]
        for dtype, by_phase in self.counts.items():
            for phase in PHASES:
                counts = by_phase.get(phase)
                if counts:
                    cells = " | ".join(f"{counts[key]:,}" if counts[key] else "" for key in OUTCOMES)
                    lines.append(f"| {dtype} | {phase} | {counts.total():,} | {cells} |")
        lines.append("\n" + ", ".join(f"{number} entries in {dtype}" for dtype, number in self.entries.items()))
        for why, names in self.known.items():
            lines.append(f"\n{why}\n  {', '.join(f'{name} ({number})' for name, number in sorted(names.items()))}")
        if self.unexplained:
            lines.append(f"\n{len(self.unexplained)} without an explanation:")
            lines += [f"  {line}" for line in self.unexplained]
        return "\n".join(lines)


def chosen(cases: list[Case], arguments: argparse.Namespace) -> list[Case]:
    """The cases that were asked for, always in the same order."""
    dtypes, names = arguments.dtypes.split(","), arguments.only.split(",")
    every = [case for case in cases if case[1] in dtypes]
    if arguments.only:
        return [case for case in every if case[0] in names or case[0].rpartition(".")[0] in names]
    if arguments.part > 1:
        return [case for number, case in enumerate(every) if number % arguments.part == 0 or case[0] in COVERS]
    return every


def main() -> int:
    """Run; returns 1 if there is an unexplained difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, help="every N-th case only")
    parser.add_argument("--only", default="", help="names of entries, separated by commas")
    parser.add_argument("--dtypes", default="float32,float16,complex64,int64")
    parser.add_argument("--samples", type=int, default=10, help="of each entry, at most")
    parser.add_argument("--json", type=Path, help="where the answers are written as well")
    arguments = parser.parse_args()
    table, answers = Table(), []
    began = time.monotonic()
    child: Child | None = Child(arguments.samples)
    wanted = chosen(child.cases, arguments)
    for number, case in enumerate(wanted):
        child = child or Child(arguments.samples)
        found = child.ask(case)
        if isinstance(found, str):
            child.end()
            child = None
        table.add(case, found)
        answers.append([case, found])
        if sys.stderr.isatty() or number % 100 == 99:
            print(f"{number + 1} of {len(wanted)}, {time.monotonic() - began:.0f} s: {' '.join(case)}", file=sys.stderr)
    if child is not None:
        child.end()
    print(table.text())
    print(f"\n{len(wanted)} cases in {time.monotonic() - began:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(answers))
    return 1 if table.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
