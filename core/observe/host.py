"""`python -m devexplorer.core.observe.host PID`: a host, as of a machine, whose engine is a running script. Main
thread."""

from __future__ import annotations

import sys
from functools import partial

from devexplorer.core.machines.host.daemon import serve
from devexplorer.core.observe.running import AttachedEngine

if __name__ == "__main__":
    sys.exit(serve(make_engine=partial(AttachedEngine, int(sys.argv[1]))))
