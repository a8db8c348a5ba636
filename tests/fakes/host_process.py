"""A host in a process of its own, as a proxy starts it, with an engine that does nothing: `python host_process.py`."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from devexplorer.core.machines.host import daemon
    from devexplorer.core.records import EventSink
    from devexplorer.core.session import session
    from fakes.hosts import READY, SilentEngine

    def silent(put: EventSink, *_: object, **__: object) -> SilentEngine:
        """An engine that is ready at once."""
        put(READY)
        return SilentEngine(put)

    session.EngineProcess = silent  # type: ignore[assignment,misc]
    sys.exit(daemon.serve())
