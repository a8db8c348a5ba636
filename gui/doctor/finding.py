"""One finding of the doctor in full: what is wrong, the fix, the line in its code, the patch. Main thread."""

from __future__ import annotations

import os
from collections.abc import Callable

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QSizePolicy

from devexplorer.core.base import bytes_text, count_text, seconds_text, sentence
from devexplorer.core.doctor.findings.rules import RULES
from devexplorer.core.records import Finding, Unchecked
from devexplorer.gui.doctor.rows import full_place, title_of
from devexplorer.gui.objects.findings import place_text
from devexplorer.gui.widgets import (
    EDGE_PX,
    ElidedLabel,
    Role,
    ScrollColumn,
    Sign,
    hbox,
    label,
    push_button,
    severity_tone,
    show_text,
    vbox,
)
from devexplorer.gui.widgets.source_view import DiffView, SourceView

LEAST_PX, WIDTH_PX = 320, 440
_SIGN_PX = 16


class FindingView(ScrollColumn):
    """Everything is shown as plain text, whatever it looks like."""

    path_requested = Signal(str)
    """The button with the path was clicked: path in the model."""
    patch_requested = Signal(object)
    """The patch of this finding is to be applied (`Finding`)."""

    def __init__(self, machine: Callable[[], str] = lambda: "") -> None:
        """`machine`: the one that the finding is of, where that is not this one."""
        super().__init__("The chosen finding", LEAST_PX, WIDTH_PX)
        self._machine = machine
        self.shown: Finding | Unchecked | None = None
        """What is on show."""
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
        self.no_source = label("", words="dim", wrap=True)
        self.patch_title = label("The fix as a patch", Role.LABEL, "dim")
        self.patch = DiffView()
        self.rule = label("", Role.LABEL, "dim", wrap=True)
        for text in (self.title, self.message, self.fix, self.cost, self.no_source, self.rule):
            text.setSizePolicy(
                QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
            )  # one long word would push all else out of view
        self._lay_out()
        self.show_nothing()

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

    def show_nothing(self) -> None:
        """No row is chosen."""
        self.shown = None
        self.content.setVisible(False)

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
        self.place.set_full_text(where_text(thing))
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


def where_text(thing: Finding | Unchecked) -> str:
    """`net.py:12 · blocks.0.scale`."""
    path = thing.path if isinstance(thing, Finding) else ""
    return " · ".join(filter(None, (place_text(thing), path)))


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
