"""A host in a process of its own, as a proxy starts it, with an engine that does nothing: `python host_process.py`."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from devexplorer.core.host import daemon
    from devexplorer.core.host.engines import Engines
    from devexplorer.core.records import EventSink
    from fakes.hosts import READY, SilentEngine

    class Silent(Engines):
        """Engines that are ready at once."""

        def __call__(self, put: EventSink, *_: object) -> SilentEngine:  # type: ignore[override]
            put(READY)
            return SilentEngine(put)

    daemon.Engines = Silent  # type: ignore[misc]
    sys.exit(daemon.serve())
