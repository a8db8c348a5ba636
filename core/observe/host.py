"""`python -m devexplorer.core.observe.host PID [ranks]`: a host, as of a machine, whose engine is a running script, or
all ranks of its job. Main thread."""

from __future__ import annotations

import sys
from typing import Any

from devexplorer.core.machines.host.daemon import serve
from devexplorer.core.machines.records import Goodbye
from devexplorer.core.observe.job import JobEngine
from devexplorer.core.observe.running import AttachedEngine

IDLE_S = 30.0
"""A script that nobody looks at is left alone soon."""


def main(pid: int, engine: type[AttachedEngine] = AttachedEngine) -> int:
    """Serve until that script ends, or nobody looks."""
    attached: list[AttachedEngine] = []

    def attach(*arguments: Any) -> AttachedEngine:
        attached.append(engine(pid, *arguments))
        return attached[-1]

    def over() -> Goodbye | None:
        return attached[-1].goodbye if attached else None

    return serve(make_engine=attach, over=over, idle_s=IDLE_S)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), JobEngine if sys.argv[2:] else AttachedEngine))
