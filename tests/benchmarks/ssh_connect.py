"""How long does it take from Connect until the devices of another machine are known, over a real sshd on this one?

    python tests/benchmarks/ssh_connect.py [--rounds 5]

The window's end of the link without the window; at the far end login shell, Python, our code, proxy, host and its
session, each time another host. Once with our code there, once with an empty cache. Wanted: 3 s and 8 s at most. Exit
code 1 if that is missed, 2 if there is no sshd."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.command_line import CLI
from fakes.sshd import HOST, Sshd, program

from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.window.machines import FarMachine
from devexplorer.core.machines.window.routes import SshRoute

WANTED_S = {"our code is there": 3.0, "nothing is there": 8.0}
PATIENCE_S = 60.0


def measure(server: Sshd) -> float:
    """Seconds until the devices are known."""
    begun = time.perf_counter()
    environ = server.environ()
    route = SshRoute(HOST, sys.executable, lambda host, report: Connection(host, report, environ=environ))
    machine = FarMachine(HOST, route)
    try:
        machine.session.start()
        while time.perf_counter() - begun < PATIENCE_S:
            machine.session.beat()
            catalog = machine.session.drain().catalog
            if catalog is not None and catalog.devices:
                return time.perf_counter() - begun
            if machine.session.link.state == "lost":
                raise SystemExit(f"no connection: {machine.session.link.reason}")
            time.sleep(0.005)
        raise SystemExit(f"no devices within {PATIENCE_S:.0f} s")
    finally:
        machine.session.close()
        stop = [*CLI, "host", "stop"]
        subprocess.run(stop, env={**os.environ, "HOME": str(server.home)}, stdout=subprocess.DEVNULL, check=False)


def main() -> int:
    """Measure both, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    sshd = program()
    if sshd is None:
        print("there is no sshd here (Debian and Ubuntu: apt-get install openssh-server)", file=sys.stderr)
        return 2
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_RUNTIME_DIR": folder, "TMPDIR": folder}  # the hosts of this script are not the user's
        server = Sshd(Path(folder) / "sshd", sshd, XDG_RUNTIME_DIR=folder)
        try:
            times: dict[str, list[float]] = {name: [] for name in WANTED_S}
            for _ in range(rounds):
                shutil.rmtree(server.home / ".cache", ignore_errors=True)
                times["nothing is there"].append(measure(server))
                times["our code is there"].append(measure(server))
        finally:
            server.stop()
    for name, wanted in WANTED_S.items():
        median = statistics.median(times[name])
        missed |= median > wanted
        print(f"{name}: median {median:.2f} s, {min(times[name]):.2f} to {max(times[name]):.2f} (wanted: {wanted:g})")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
