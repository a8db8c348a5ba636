"""A machine that the window can show: its session, and what is known of it while another is shown. Main
thread; no Qt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from devexplorer.core.session.state import State

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session


class Machine:
    """This machine; a feature has others, whose session has what the window needs of this one's."""

    def __init__(self, name: str = "this machine") -> None:
        self.name = name
        """As a sentence says it: `on NAME`."""
        self.session: Session | None = None
        """None: it is not looked at (yet)."""
        self.aside = State()
        """What is known of it while it is not shown; contents that mean nothing while it is."""
        self.span_s: float | None = None
        """How much time the plots show of it; None: it was not shown yet."""

    @property
    def is_here(self) -> bool:
        """Whether its files and its screen are this window's own."""
        return True

    @property
    def is_late(self) -> bool:
        """Whether what is known of it is not of this moment."""
        return False

    def now(self) -> float:
        """The end of its plots, by this window's clock."""
        return time.time()
