"""`python -m devexplorer.core.cli`: the command line without the window, for machines without Qt."""

import sys

from devexplorer.core.cli.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
