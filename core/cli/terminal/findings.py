"""What is wrong with the arguments of a command, with how to get virtual GPUs where those would do. No torch, main
thread."""

from __future__ import annotations

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
        from devexplorer.core.devices.profiles import (
            parse_virtual,
        )  # reads a table; only who asks for virtual GPUs needs it

        return self.checked(lambda: parse_virtual(spec)) is not None

    def demand_none(self) -> None:
        """Raise one `BadInput` with everything that was found, and how to get virtual GPUs where those would do."""
        if self.findings:
            hint = ['try it with --virtual "2x Tesla T4"'] if self.virtual_helps and not self._virtual_given else []
            raise BadInput(*self.findings, *hint, virtual_helps=self.virtual_helps)
