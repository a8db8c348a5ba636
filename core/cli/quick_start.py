"""What makes the first reading of `watch`, and the window, come sooner. Main thread, before everything else."""

from __future__ import annotations

import sys


def quick_start() -> None:
    """Import msgspec without typing_extensions, which it takes what it needs from where there is one, and else from
    typing.

    typing_extensions, with the inspect, ast and tokenize that it brings, takes an eighth of the time of `watch --count
    1`, and its typing of numpy is slower; Python 3.11's has all that msgspec asks it for. A later import still gets it.
    Whatever imports msgspec comes after this.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    # what Python has for a module that must not be imported
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
