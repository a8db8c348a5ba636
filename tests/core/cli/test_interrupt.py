"""Ctrl-C at any moment: quiet, exit code 130; also if SIGINT was inherited as ignored, as in the background of a
script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from devexplorer.core.cli import startup
from devexplorer.core.cli.stopping import Stopping

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")

INTERRUPTED = """
import os, signal, sys

class Interrupts:
    # presses Ctrl-C as a module is looked for: in the middle of somebody's import

    def find_spec(self, name, path=None, target=None):
        if name == WANTED:
            os.kill(os.getpid(), signal.SIGINT)
        return None

WANTED = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupts())
"""
WINDOW = INTERRUPTED + "from devexplorer.gui.shell.main import main; sys.exit(main())"
COMMAND_LINE = INTERRUPTED + "import runpy; runpy.run_module('devexplorer.core.cli', run_name='__main__')"


@pytest.mark.parametrize("entry", [WINDOW, COMMAND_LINE], ids=["devexplorer", "devexplorer.core.cli"])
@pytest.mark.parametrize("module", ["devexplorer.core.cli.arguments", "devexplorer.core.cli.place", "torch"])
def test_ctrl_c_in_the_middle_of_an_import_is_quiet(entry: str, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", entry, module, "place", "mlp"], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_who_waits_hears_of_a_signal_that_was_ignored_and_it_is_ignored_again_afterwards() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Stopping() as stopping:
            signal.raise_signal(signal.SIGINT)
            assert stopping.wait(3600)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "a second one ends the program"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_has_to_put_things_in_order_is_interrupted_by_an_exception() -> None:
    before = signal.getsignal(signal.SIGINT)
    startup.end_quietly()
    try:
        with pytest.raises(KeyboardInterrupt), startup.Raising():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is startup._end
    finally:
        signal.signal(signal.SIGINT, before)
