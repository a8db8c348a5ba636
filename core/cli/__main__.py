"""`python -m devexplorer.core.cli`: the command line without the window, for machines without Qt."""

import sys

from devexplorer.core.cli.quick_start import quick_start
from devexplorer.core.cli.terminal import interrupt

if __name__ == "__main__":
    interrupt.end_quietly()
    quick_start()  # before what the next line imports
    from devexplorer.core.cli.run import main

    sys.exit(main(sys.argv[1:]))
