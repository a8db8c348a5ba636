"""`python -m devexplorer.core.cli`: the command line without the window, for machines without Qt."""

import sys

from devexplorer.core.cli import startup
from devexplorer.core.cli.startup import quick_start

if __name__ == "__main__":
    startup.end_quietly()
    quick_start()  # before what the next line imports
    from devexplorer.core.cli.run import main

    sys.exit(main(sys.argv[1:]))
