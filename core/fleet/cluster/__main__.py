"""`python -m devexplorer.core.fleet.cluster ADDRESS [--virtual SPEC] [--marker HEX]`: the process that is attached to a
Ray cluster.

It says what happens there on standard output, is told what to do on standard input, and gives everything back when that
ends. Main thread, one that reads, and those of the links."""

from __future__ import annotations

import os
import sys

from devexplorer.core.engine.link import frame
from devexplorer.core.fleet.cluster.messages import CannotAttach

EXTRA = "pip install 'devexplorer[cluster]'"


def main(argv: list[str]) -> int:
    """Attach, follow, leave; returns the exit code."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever Ray prints is none of ours
    address, options = argv[0], dict(zip(argv[1::2], argv[2::2], strict=True))
    if marker := options.get("--marker"):  # whatever was printed before it was none of ours
        os.write(out, f"\n{marker}\n".encode())
    try:
        from devexplorer.core.fleet.cluster.attached import attached
    except ImportError as error:
        os.write(out, frame(CannotAttach(reason=f"Ray is not installed in {sys.executable} ({error}); {EXTRA}")))
        return 2
    return attached(address, options.get("--virtual"), out)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # threads of links may still wait for nodes that are gone
