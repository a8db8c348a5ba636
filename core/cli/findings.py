"""What is wrong with the arguments of a command, with how to get virtual GPUs where those would do; values of options
that several commands take. No torch, main thread."""

from __future__ import annotations

import os
from functools import partial

from devexplorer.core.base import BadInput, findings


class TerminalFindings(findings.Findings):
    """Take values through `checked`, then call `demand_none`."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_given = False

    def check_virtual(self, spec: str | None) -> bool:
        """Whether `--virtual`, if given, names GPUs that there are; makes none."""
        self._virtual_given = spec is not None
        if spec is None:
            return True
        from devexplorer.core.devices.profiles import parse_virtual  # reads a table: for those who want virtual GPUs

        return self.checked(lambda: parse_virtual(spec)) is not None

    def demand_none(self) -> None:
        """Raise one `BadInput` with everything that was found, and how to get virtual GPUs where those would do."""
        if self.findings:
            hint = ['try it with --virtual "2x Tesla T4"'] if self.virtual_helps and not self._virtual_given else []
            raise BadInput(*self.findings, *hint, virtual_helps=self.virtual_helps)


def target(text: str, findings: TerminalFindings) -> str:
    """A TARGET without the spaces around it. What looks like a source has to be one; sample models are known where
    torch is."""
    if ":" in text:
        from devexplorer.core.isolation.model_source import parse  # which `watch` has no need of

        findings.checked(partial(parse, text), None)
    elif not text.strip():
        findings.add("no model is named; write a sample model as lenet, or a source as path/to/file.py:factory")
    _demand_unicode(text, "the target", findings)
    return text.strip()


def current_folder(findings: TerminalFindings) -> str:
    """The folder whose modules can be imported."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        findings.add("the current folder does not exist any more; change to another one")
        return ""
    _demand_unicode(folder, "the current folder", findings)
    return folder


def _demand_unicode(text: str, what: str, findings: TerminalFindings) -> None:
    """Names travel to other processes and into documents as UTF-8; one in other bytes cannot."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        findings.add(
            f"{what} {text!a} is not UTF-8 here; rename it, or set LC_ALL=C.UTF-8 where the locale knows no such"
            " letters"
        )
