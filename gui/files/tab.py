"""The page Session: everything that was done, as Python. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import FILE, TabSpec, WindowContext, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.files.session_code import SessionPanel


def _connect(context: WindowContext, page: SessionPanel) -> None:
    page.save_requested.connect(partial(_save, context))
    page.set_source(context.session)
    context.session_started.connect(page.set_source)


def _save(context: WindowContext) -> None:
    """As a script or a notebook, by the extension."""
    formats = {"py": "Python script", "ipynb": "Jupyter notebook"}
    chosen = context.script_chosen.emit
    context.save_file("Save the session as Python", "session.py", formats, chosen, by_window=True)


TAB = TabSpec(
    "session", lazy_page("devexplorer.gui.files.session_code:SessionPanel", _connect),
    redraw=Change.JOBS | Change.ENGINE,
    action="Session as Python", tooltip="Everything that was done, as a script or a notebook", menu=FILE, section=3,
    order=170,
)  # fmt: skip
