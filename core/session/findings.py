"""What the doctor found, as rows of the object tree: each finding below the row that it is about. Main thread; no Qt.

Made for objects that were diagnosed only; others are shown as they are, at no cost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np

from devexplorer.core.base import count_text
from devexplorer.core.records import Diagnosis, Finding, Row, Unchecked
from devexplorer.core.records.doctor import SEVERITIES
from devexplorer.core.session.row_table import RowTable, Shape

KIND: Final = "finding"
"""`Row.kind` of a finding."""
TIPS: Final = 3
"""So many findings are in the tooltip of a row; the others are counted."""


def findings_of(diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Problems and notes in the order in which they are numbered."""
    return (*diagnosis.problems, *diagnosis.notes)


def holder(outline: RowTable, path: str) -> int:
    """The row that a finding at `path` is about: its own, or else that of the nearest module or container around it; 0:
    the object."""
    while path:
        index = outline.place(path)
        if index is not None:
            return index
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return 0


def tally(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 warning`."""
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}
    return ", ".join(count_text(count, severity) for severity, count in counts.items() if count)


class ObjectFindings:
    """The rows of one object with those of a diagnosis among them."""

    def __init__(self, outline: RowTable, diagnosis: Diagnosis) -> None:
        """`outline`: of the object as it is in the workspace."""
        self.diagnosis: Final = diagnosis
        self._without: RowTable = outline
        numbered = list(enumerate(findings_of(diagnosis)))
        held = sorted((holder(outline, finding.path), number, finding) for number, finding in numbered)
        self._holders: Final = np.array([index for index, _, _ in held], np.int64)
        """Rows of `outline` that findings are about, one for each finding, ascending."""
        self._rows: Final = [_row(outline.rows[index], number, finding) for index, number, finding in held]
        self.numbers: Final = {index + behind + 1: number for behind, (index, number, _) in enumerate(held)}
        """Rows that are findings, each with the finding's number."""
        self.findings: Final = {index + behind + 1: finding for behind, (index, _, finding) in enumerate(held)}
        self.outline: RowTable = RowTable(self._mixed(outline.rows))
        self._in: dict[int, tuple[Finding, ...]] = {}

    def follow(self, outline: RowTable) -> bool:
        """The object has a newer outline; False when its paths are others, and the findings have to be put in their
        places anew."""
        places = outline.changes_since(self._without)
        if places is None:
            return False
        moved = np.asarray(places, np.int64)
        moved = moved + np.searchsorted(self._holders, moved, side="left")
        self._without, self.outline = outline, self.outline.changed(self._mixed(outline.rows), moved.tolist())
        return True

    def inside(self, at: int) -> tuple[Finding, ...]:
        """What was found about row `at` and everything below it, the worst first."""
        if at not in self._in:
            shape: Shape = self.outline.shape
            result = [finding for place, finding in self.findings.items() if at < place < shape.ends[at]]
            self._in[at] = tuple(sorted(result, key=lambda finding: SEVERITIES.index(finding.severity)))
        return self._in[at]

    def parent(self, at: int) -> int:
        """The row that the finding at this row is about."""
        return self.outline.shape.parents[at]

    def _mixed(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(chain.from_iterable(self._parts(rows)))

    def _parts(self, rows: tuple[Row, ...]) -> Iterator[Sequence[Row]]:
        done = 0
        for index, row in zip(self._holders.tolist(), self._rows, strict=True):
            yield rows[done : index + 1]
            yield (row,)
            done = max(done, index + 1)
        yield rows[done:]


def _row(above: Row, number: int, finding: Finding) -> Row:
    """The line break keeps the path apart from every path of the object's own."""
    return Row(
        path=f"{above.path}\n{number}", name=str(finding.message), kind=KIND, type=finding.rule, depth=above.depth + 1
    )


def words_of(finding: Finding) -> str:
    """What is wrong, and what would be right."""
    return f"{finding.message} {finding.fix}"


def place_text(finding: Finding | Unchecked) -> str:
    """`net.py:12`, to be seen beside other things; empty where no line is to blame."""
    return f"{os.path.basename(finding.file)}:{finding.line}" if finding.file else ""


def told(findings: Sequence[Finding]) -> str:
    """The first of these findings in sentences, one on each line, and how many more there are."""
    lines = [f"{finding.severity}: {words_of(finding)}" for finding in findings[:TIPS]]
    more = len(findings) - TIPS
    return "\n".join(lines + ([f"and {more} more"] if more > 0 else []))
