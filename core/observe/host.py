"""`python -m devexplorer.core.observe.host PID [ranks]`: a host, as of a machine, whose engine is a running script, or
all ranks of its job; `… proxy PID [ranks] --marker HEX`: the way to it, which ssh starts. Main thread."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from devexplorer.core.machines.host.finding import proxy
from devexplorer.core.observe.job import JobEngine
from devexplorer.core.observe.running import AttachedEngine, reach_script

if TYPE_CHECKING:
    from devexplorer.core.machines.records import Goodbye

IDLE_S = 30.0
"""A script that nobody looks at is left alone soon."""


def serve_script(pid: int, engine: type[AttachedEngine]) -> int:
    """Serve until that script ends, or nobody looks."""
    from devexplorer.core.machines.host.daemon import serve  # the proxy does without

    attached: list[AttachedEngine] = []

    def attach(*arguments: Any) -> AttachedEngine:
        attached.append(engine(pid, *arguments))
        return attached[-1]

    def over() -> Goodbye | None:
        return attached[-1].goodbye if attached else None

    return serve(make_engine=attach, over=over, idle_s=IDLE_S)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["proxy", *script, "--marker", marker]:
            code = proxy(marker, lambda: reach_script(*script))
            sys.stderr.flush()
            os._exit(code)  # a thread of the proxy may still wait for input that nobody sends
        case [pid, *ranks]:
            sys.exit(serve_script(int(pid), JobEngine if ranks else AttachedEngine))
