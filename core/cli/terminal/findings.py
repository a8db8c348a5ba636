"""Collects everything that is wrong with the arguments, so that one line can say all of it. No torch, main thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from devexplorer.core.base.errors import BadInput

T = TypeVar("T")
D = TypeVar("D")


class Findings:
    """Take values through `checked`, then `demand_none`."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._virtual_helps = False
        self._virtual_given = False

    def add(self, *findings: str) -> None:
        """Something is wrong, in words."""
        self._found.extend(findings)

    def checked(self, make: Callable[[], T], otherwise: D) -> T | D:
        """What `make` returns, or `otherwise` when it finds something wrong."""
        try:
            return make()
        except BadInput as error:
            self.add(*error.findings)
            self._virtual_helps |= error.virtual_helps
            return otherwise

    def check_virtual(self, spec: str | None) -> bool:
        """Whether `--virtual`, if given, names GPUs that there are; makes none."""
        self._virtual_given = spec is not None
        if spec is None:
            return True
        from devexplorer.core.devices.profiles import (
            parse_virtual,
        )  # reads a table; only who asks for virtual GPUs needs it

        return self.checked(lambda: parse_virtual(spec), None) is not None

    def demand_none(self) -> None:
        """Raise one `BadInput` with everything that was found, and how to get virtual GPUs where those would do."""
        if self._found:
            hint = ['try it with --virtual "2x Tesla T4"'] if self._virtual_helps and not self._virtual_given else []
            raise BadInput(*dict.fromkeys([*self._found, *hint]), virtual_helps=self._virtual_helps)
