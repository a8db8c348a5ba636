"""One finding of the doctor in full: what is wrong, the fix, the line in its code, the patch. Main thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.core.base import MISSING, bytes_text, count_text, joined, seconds_text, sentence
from devexplorer.core.doctor.findings.rules import RULES, passes, verdict
from devexplorer.core.records import ApplyPatch, Diagnosis, Finding, Unchecked
from devexplorer.core.session.findings import findings_of, place_text, words_of
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import (
    EDGE_PX,
    Cell,
    Column,
    ElidedLabel,
    Role,
    ScrollColumn,
    Sign,
    TableRow,
    hbox,
    label,
    push_button,
    severity_tone,
    show_text,
    vbox,
)
from devexplorer.gui.widgets.source_view import DiffView, SourceView

COLUMNS: Final = (
    Column("severity"),
    Column("rule", "What kind of finding it is"),
    Column("path", "Module, parameter or attribute"),
    Column("place", "File and line that are to blame"),
    Column("what is wrong"),
)
RULE, PATH, PLACE = 1, 2, 3
SIGNS: Final = {"error": "✕", "warning": "△", "note": "•", "not checked": "○"}
"""Before the word, so that it is never the colour alone."""

FINDING, UNCHECKED = "finding", "not checked"
"""The first part of a row's key; the second is the number."""


def title_of(rule: str) -> str:
    """The words for a rule."""
    return RULES[rule].title if rule in RULES else rule


def table_rows(diagnosis: Diagnosis) -> list[TableRow]:
    """Problems first, then what was not checked, then notes."""
    result = [_finding(number, finding) for number, finding in enumerate(findings_of(diagnosis))]
    unchecked = [_unchecked(number, item) for number, item in enumerate(diagnosis.unchecked)]
    problems = len(diagnosis.problems)
    return [*result[:problems], *unchecked, *result[problems:]]


def _finding(number: int, finding: Finding) -> TableRow:
    title = title_of(finding.rule)
    summary = RULES[finding.rule].summary if finding.rule in RULES else ""
    times = f"  × {finding.count:,}" if finding.count > 1 else ""
    return TableRow(
        (FINDING, number),
        (
            Cell(f"{SIGNS.get(finding.severity, '')} {finding.severity}", severity_tone(finding.severity)),
            Cell(title, "", "\n".join((title, summary)).rstrip()),
            Cell(finding.path or MISSING, "", finding.path or "the model itself"),
            Cell(place_text(finding) or MISSING, "dim", full_place(finding)),
            Cell(f"{finding.message}{times}", "", words_of(finding)),
        ),
    )


def _unchecked(number: int, unchecked: Unchecked) -> TableRow:
    place = place_text(unchecked)
    return TableRow(
        (UNCHECKED, number),
        (
            Cell(f"{SIGNS['not checked']} not checked", "dim"),
            Cell(unchecked.what, "", unchecked.what),
            Cell(MISSING, "dim"),
            Cell(place or MISSING, "dim", full_place(unchecked)),
            Cell(sentence(str(unchecked.reason)), "soft", sentence(str(unchecked.reason))),
        ),
    )


def full_place(thing: Finding | Unchecked) -> str:
    """`/home/ada/net.py, line 12`."""
    return f"{thing.file}, line {thing.line}" if thing.file else "no line is to blame"


def sign_of(diagnosis: Diagnosis) -> str:
    """`error`, `warning`, `not checked`, or `clean`."""
    severities = {finding.severity for finding in diagnosis.problems}
    for severity in ("error", "warning"):
        if severity in severities:
            return severity
    return "not checked" if diagnosis.unchecked else "clean"


def all_of_it(diagnosis: Diagnosis) -> str:
    """`1 error, 1 note; 41 operations on vgpu:0 (simulated)`, or `No problem; …`; without operations, where none was
    traced."""
    said = verdict(diagnosis)
    said = f"{said[:1].upper()}{said[1:]}"
    if not diagnosis.operations:
        return said
    where = f"{diagnosis.device} (simulated)" if diagnosis.simulated else diagnosis.device
    return f"{said}; {count_text(diagnosis.operations, 'operation')} on {where}"


def circumstances(diagnosis: Diagnosis) -> str:
    """`Tesla T4 · inputs 8x3x32x32 · forward in evaluation mode`."""
    inputs = f"inputs {diagnosis.inputs}" if diagnosis.inputs else ""
    return joined(" · ", diagnosis.device_name, inputs, passes(diagnosis) if diagnosis.operations else "")


LEAST_PX, WIDTH_PX = 320, 440
_SIGN_PX = 16


class FindingView(ScrollColumn):
    """Everything is shown as plain text, whatever it looks like."""

    path_requested = Signal(str)
    """The button with the path was clicked: path in the model."""
    patch_requested = Signal(object)
    """The patch of this finding is to be applied (`Finding`)."""

    def __init__(self, machine: Callable[[], str]) -> None:
        """`machine`: the one that the finding is of, where that is not this one."""
        super().__init__("The chosen finding", LEAST_PX, WIDTH_PX)
        self._machine = machine
        self.shown: Finding | Unchecked | None = None
        """What is shown."""
        self.sign = Sign(size=_SIGN_PX)
        self.title = label(role=Role.STRONG, wrap=True, selectable=True)
        self.message = label(wrap=True, selectable=True)
        self.fix = label(words="soft", wrap=True, selectable=True)
        self.cost = label(words="dim", wrap=True, selectable=True)
        self.place = ElidedLabel(Role.LABEL, "dim")
        self.place.cut = Qt.TextElideMode.ElideMiddle
        self.apply_button = push_button("Apply patch…", self._apply, look="primary")
        self.open_button = push_button("Open in editor", self._open)
        self.path_button = push_button("Show in the tree", self._show_path, look="quiet")
        self.source = SourceView()
        self.no_source = label(words="dim", wrap=True)
        self.patch_title = label("The fix as a patch", Role.LABEL, "dim")
        self.patch = DiffView()
        self.rule = label("", Role.LABEL, "dim", wrap=True)
        for text in (self.title, self.message, self.fix, self.cost, self.no_source, self.rule):
            text.setSizePolicy(
                QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
            )  # one long word would push all else out of view
        self._lay_out()
        self.content.setVisible(False)

    def _lay_out(self) -> None:
        head = hbox((self.sign, 0, Qt.AlignmentFlag.AlignTop), (self.title, 1))
        column = vbox(
            head,
            hbox(self.apply_button, self.open_button, None, spacing=4),
            hbox((self.place, 1), self.path_button, spacing=4),
            self.message,
            self.fix,
            self.source,
            self.no_source,
            self.cost,
            self.patch_title,
            self.patch,
            self.rule,
            None,
            spacing=6,
            margins=(EDGE_PX, 6, EDGE_PX, 6),
        )
        self.set_content(column)

    def show_unchecked(self, unchecked: Unchecked) -> None:
        """Something that was not checked."""
        self._show(unchecked, f"Not checked: {unchecked.what}", sentence(str(unchecked.reason)), "", "")
        self.source.setVisible(False)
        self.no_source.setVisible(False)
        self.path_button.setVisible(False)
        self._show_patch(None, "")
        show_text(self.rule, "What was not checked is neither right nor wrong.")

    def show_finding(self, finding: Finding, *, applied: bool = False) -> None:
        """Something that was found; `applied`: its patch is in the file."""
        self._show(finding, title_of(finding.rule), str(finding.message), str(finding.fix), cost_text(finding))
        self.source.setVisible(finding.code is not None)
        self.source.set_lines(finding.code, finding.line)
        no_code = (
            f"The lines of {finding.file} cannot be read here." if finding.file else "No line of Python is to blame."
        )
        show_text(self.no_source, no_code if finding.code is None else "")
        self.path_button.setVisible(True)
        self.path_button.setToolTip(f"Select {finding.path or 'the model'} in the list of objects")
        self._show_patch(finding.patch, finding.digest, applied)
        show_text(self.rule, RULES[finding.rule].summary if finding.rule in RULES else "")

    def show_line(self) -> None:
        """Scroll to the line that is to blame."""
        if not self.source.isVisibleTo(self):
            return
        self.content.adjustSize()
        self.source.show_line()
        line = self.source.line_rect()
        middle = self.source.mapTo(self.content, line.center())
        self.ensureVisible(0, middle.y(), 0, self.viewport().height() // 2)

    def _show(self, thing: Finding | Unchecked, title: str, message: str, fix: str, cost: str) -> None:
        if thing is not self.shown:
            self.verticalScrollBar().setValue(0)
        self.shown = thing
        self.content.setVisible(True)
        self.title.setText(title)
        show_text(self.message, message)
        show_text(self.fix, fix)
        show_text(self.cost, cost)
        path = thing.path if isinstance(thing, Finding) else ""
        self.place.set_full_text(joined(" · ", place_text(thing), path))
        self.place.setToolTip(full_place(thing))
        self.open_button.setVisible(bool(thing.file))
        self.open_button.setText("Open in editor")
        far = self._machine()  # a path from there may name any file here
        self.open_button.setEnabled(not far and os.path.isfile(thing.file))
        where = f"on {far}" if far else "not on this machine"
        self.open_button.setToolTip(thing.file if self.open_button.isEnabled() else f"{thing.file} is {where}.")
        self._show_sign()

    def _show_sign(self) -> None:
        finding = self.shown
        self.sign.setVisible(isinstance(finding, Finding))
        if isinstance(finding, Finding):
            self.sign.show_icon(finding.severity, severity_tone(finding.severity))
            self.sign.setToolTip(finding.severity)
            self.sign.setAccessibleName(finding.severity)

    def _show_patch(self, patch: str | None, digest: str, applied: bool = False) -> None:
        self.patch.set_code((patch or "").rstrip("\n"))
        self.patch.setVisible(bool(patch))
        self.patch_title.setVisible(bool(patch))
        self.apply_button.setVisible(bool(patch))
        self.apply_button.setText("Patch applied" if applied else "Apply patch…")
        self.apply_button.setEnabled(bool(digest) and not applied)
        why_not = "The file has it; check again to see what is left." if applied else ""
        self.apply_button.setToolTip(why_not if digest else "A file of DevExplorer itself is not changed.")

    def _apply(self) -> None:
        if isinstance(self.shown, Finding):
            self.patch_requested.emit(self.shown)

    def _open(self) -> None:
        if self.shown is not None and not QDesktopServices.openUrl(QUrl.fromLocalFile(self.shown.file)):
            self.open_button.setText("No editor found")

    def _show_path(self) -> None:
        if isinstance(self.shown, Finding):
            self.path_requested.emit(self.shown.path)


def cost_text(finding: Finding) -> str:
    """`3 times in one forward; 1.00 MiB and 84 µs (simulated) each time`."""
    costs = [bytes_text(finding.bytes)] if finding.bytes is not None else []
    if finding.seconds is not None:
        costs.append(seconds_text(finding.seconds, finding.simulated))
    each = " and ".join(costs)
    if finding.count == 1:
        return f"Costs {each}." if each else ""
    times = f"{count_text(finding.count, 'time')} in one pass"
    return f"{times}; {each} each time." if each else f"{times}."


class PatchDialog(FormDialog):
    """Nothing is written before Apply."""

    def __init__(self, command: ApplyPatch, parent: QWidget | None = None) -> None:
        super().__init__("Apply patch", "Apply", 640, parent)
        self._command = command
        self.patch = DiffView()
        self.patch.set_code(command.patch.rstrip("\n"))
        self.add_row("file", label(command.file, role=Role.CODE, wrap=True, selectable=True))
        self.add_part(self.patch, 1)
        name = os.path.basename(command.file)
        self.say(f"The previous file is kept beside it as {name}.orig, or with a number where that exists.")

    def command(self) -> ApplyPatch:
        """See `FormDialog`."""
        return self._command
