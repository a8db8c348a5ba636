"""Modules are imported without PySide reading their source. Main thread, before the modules of the window."""

from __future__ import annotations

import builtins


def import_plainly() -> None:
    """Take back Python's `import` from PySide, which puts its own in place of it when it is imported.

    PySide's looks for `from __feature__ import`, which nothing here uses: every statement takes ten times as long, and
    of each new module the source is read, split into lines and kept: a sixth of the time until the window answers.
    What PySide needs for its lazy classes is a layer below, and stays.
    """
    own, of_pyside = (getattr(builtins, name, None) for name in ("__orig_import__", "__feature_import__"))
    if own is not None and builtins.__import__ is of_pyside:
        builtins.__import__ = own
