"""`python -m devexplorer.core.cli`: the command line without the window, for machines without Qt."""

import sys

from devexplorer.core.cli.terminal import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()
    from devexplorer.core.cli.run import main

    sys.exit(main(sys.argv[1:]))
