"""Modules are imported without PySide reading their source. Main thread, before the modules of the window."""

from __future__ import annotations

import builtins


def import_plainly() -> None:
    """Take back Python's `import` from PySide, which puts its own in place of it when it is imported.

    PySide's looks for `from __feature__ import`, which nothing here uses: every statement takes ten times as long, and
    of each new module the source is read, split into lines and kept, a quarter of the time until the window answers.
    What PySide needs for its lazy classes is a layer below, and stays.
    """
    if builtins.__import__ is getattr(builtins, "__feature_import__", None):
        builtins.__import__ = builtins.__orig_import__  # type: ignore[attr-defined]
