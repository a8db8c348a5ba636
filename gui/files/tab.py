"""The page Session: everything that was done, as Python. Main thread only."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from devexplorer.core.base import BadInput
from devexplorer.core.records import Answer
from devexplorer.core.session import Change
from devexplorer.gui.actions import FILE, TabSpec, WindowContext, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.files.session_code import SessionPanel


def _connect(context: WindowContext, page: SessionPanel) -> None:
    page.save_requested.connect(partial(save_as, context))
    page.set_source(context.session)
    context.session_started.connect(page.set_source)


def save_as(context: WindowContext) -> None:
    """As a script or a notebook, by the extension."""
    formats = {"py": "Python script", "ipynb": "Jupyter notebook"}
    context.save_file(
        "Save the session as Python", "session.py", formats, partial(save_session, context), by_window=True
    )


def save_session(context: WindowContext, path: Path) -> None:
    """The session as a script, or as a notebook where the name ends so."""
    far, notebook = context.far, path.suffix == ".ipynb"
    if far is not None:
        far.script(notebook=notebook, then=partial(_write, context, path))
    elif context.session is not None:
        files = context.session.listener("files")
        _write(context, path, files.notebook() if notebook else files.script(to_repeat=True))


def _write(context: WindowContext, path: Path, text: str) -> None:
    """Save it without waiting for a disk."""
    from devexplorer.core.files.script import write  # when it is asked for

    session = context.shown.session

    def work() -> Answer:
        words, failed = f"{path} does again what was done and not undone here.", False
        try:
            write(path, text)
        except BadInput as error:
            words, failed = str(error), True
        return Answer(title="The session is saved as Python", words=words, failed=failed, time_unix_s=time.time())

    if session is not None:
        context.in_background("script", work, session.put)


TAB = TabSpec(
    "session", lazy_page("devexplorer.gui.files.session_code:SessionPanel", _connect),
    redraw=Change.JOBS | Change.ENGINE,
    action="Session as Python", tooltip="Everything that was done, as a script or a notebook", menu=FILE, section=3,
    order=170,
)  # fmt: skip
