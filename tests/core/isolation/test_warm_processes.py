"""A process that a test gets from the nursery is like any other (see tests/fakes/warm.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from fakes.warm import Cold, Warm

SAYS = """
import os, signal, sys, threading
main = threading.main_thread() is threading.current_thread()
print(__name__, sys.argv[1:], os.getcwd(), sys.stdin.read(), os.environ.get("GIVEN"), os.environ.get("HOME"))
print(sys.path[0], os.getsid(0) == os.getpid(), main, len(os.listdir("/proc/self/fd")))
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
os.write(int(sys.argv[1]), b"below")
raise SystemExit("over")
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes start as ever")


@pytest.mark.usefixtures("warm_processes")
def test_it_has_what_it_was_given_and_ends_as_it_likes(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text(SAYS)
    said = []
    for kind in (Cold, Warm):
        for how in (["-P", "-m", "says"], [str(tmp_path / "says.py")], ["-c", SAYS], ["-m", "says"]):
            readable, writable = os.pipe()
            with kind(
                [sys.executable, *how, str(writable), "more"], cwd=tmp_path, pass_fds=[writable], text=True,
                env={"GIVEN": "yes", "PYTHONPATH": str(tmp_path)}, start_new_session=how[0] == "-P",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            ) as process:  # fmt: skip
                out, err = process.communicate("in")
            os.close(writable)
            said.append((out.replace(str(writable), "FD"), err, process.returncode, os.read(readable, 9)))
            os.close(readable)
    assert said[:4] == said[4:]
    assert said[0][1:] == ("over\n", 1, b"below")


@pytest.mark.usefixtures("warm_processes")
def test_it_is_a_child_that_ends_by_signals_and_has_loaded_torch() -> None:
    code = "import sys; print('torch' in sys.modules, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        assert psutil.Process(process.pid).ppid() == os.getpid()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
