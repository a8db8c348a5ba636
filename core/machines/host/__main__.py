"""`python -m devexplorer.core.machines.host proxy --marker HEX` and `… serve`: what other machines, and the
proxy, start. Main thread. For people there is `devexplorer host`."""

from __future__ import annotations

import os
import sys

from devexplorer.core.base.module_command import without_cards
from devexplorer.core.machines.host.finding import FAILED, proxy, reach, serve_command


def main(argv: list[str]) -> int:
    """Run one of the two; the grammar is small so that the proxy is there at once."""
    match argv:
        case ["proxy", "--marker", marker, *rest]:
            return proxy(marker, lambda: reach(os.environ, lambda: serve_command(rest)))
        case ["serve", *rest] if len(rest) in (0, 2) and rest[:1] in ([], ["--virtual"]):
            from devexplorer.core.machines.host.daemon import serve

            if rest:  # its engine cannot have both
                os.environ.update(without_cards(os.environ))
            return serve(virtual_spec=rest[1] if rest else None)
    print(
        "usage: devexplorer.core.machines.host proxy --marker HEX [--virtual SPEC] | serve [--virtual SPEC]",
        file=sys.stderr,
    )
    return FAILED


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a thread of the proxy may still wait for input that nobody sends
