"""The console script: from its first line on Ctrl-C is quiet; then `gui.shell.launch`. Main thread."""

from __future__ import annotations

from devexplorer.core.cli import startup
from devexplorer.core.cli.startup import quick_start


def main(argv: list[str] | None = None) -> int:
    """Run DevExplorer; returns the exit code. Without `argv` the process is all ours, its Ctrl-C too."""
    if argv is None:
        startup.end_quietly()
    quick_start()  # before what the next line imports
    from devexplorer.gui.shell.launch import launch

    try:
        return launch(argv)
    finally:
        if argv is None:
            startup.end_quietly()


if __name__ == "__main__":
    raise SystemExit(main())
