"""`devexplorer cluster up`: a Ray cluster on this machine, for trying. Main thread; the nodes are processes of their
own, which end with it.

Whoever can talk to a Ray cluster can run code as its owner, and by itself Ray listens on every address and asks for
nothing. So the nodes listen on a loopback address only, every request needs a token, and sockets and token are in a
folder that only this user can enter (Ray opens its own folders to everybody)."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import tempfile
from pathlib import Path
from typing import Any

from devexplorer.core.base import BadInput, Unavailable, count_text, first_line, parse_count
from devexplorer.core.cli.startup import say
from devexplorer.core.cli.stopping import Stopping

MOST_NODES = 16
"""Each is several processes with some hundred MiB together."""
FOREVER_S = 3600.0
LOOPBACK = "127.0.0.1"
NODE: dict[str, Any] = {"num_cpus": 1, "node_ip_address": LOOPBACK}
TO_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Where this is 0, as by itself on macOS, a Ray driver takes 127.0.0.1 as it is written; elsewhere it connects to the
machine's own address instead, where nothing listens."""


def cluster(arguments: argparse.Namespace) -> int:
    """Start the nodes, print where they are, and end them on Ctrl-C."""
    nodes = parse_count(arguments.nodes, "--nodes")
    if nodes > MOST_NODES:
        raise BadInput(f"--nodes {nodes} is more than {MOST_NODES}, the most that is started on one machine")
    with tempfile.TemporaryDirectory(prefix="devexplorer-ray-", ignore_cleanup_errors=True) as folder:
        token = Path(folder) / "token"
        token.write_text(secrets.token_hex(32), encoding="ascii")
        os.environ.pop("RAY_AUTH_TOKEN", None)  # it would come before the file
        ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), TO_LOOPBACK: "0"}
        os.environ.update(ours, RAY_TMPDIR=folder)  # read by Ray when it is imported
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in ours.items())
        return _run(nodes, settings)


def _run(nodes: int, settings: str) -> int:
    try:
        import ray
        from ray.cluster_utils import Cluster
    except ImportError as error:
        raise Unavailable(f"Ray is not installed here ({error}); pip install 'devexplorer[cluster]'") from None
    try:
        from ray._raylet import AuthenticationMode, get_authentication_mode  # type: ignore[attr-defined]  # compiled

        asks = get_authentication_mode() == AuthenticationMode.TOKEN
    except ImportError:
        asks = False
    if not asks:
        raise Unavailable(
            f"Ray {ray.__version__} cannot ask for a token, so every user of this machine could run code as you;"
            " pip install --upgrade ray"
        )
    with Stopping() as stopping:
        say(f"starting {count_text(nodes, 'node')}; this takes some seconds")
        try:
            made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        except Exception as error:  # whatever Ray raises: no space, no port, no memory
            raise Unavailable(f"Ray could not start a cluster: {first_line(error)}") from error
        try:
            for _ in range(nodes - 1):
                made.add_node(**NODE)
            print(made.address, flush=True)
            command = f'{settings} devexplorer fleet --cluster {made.address} --virtual "2x Tesla T4"'
            say(f"it listens on {LOOPBACK} only and asks for a token. In another terminal: {command}; Ctrl-C ends it")
            while not stopping.wait(FOREVER_S):
                pass
        finally:
            made.shutdown()  # type: ignore[no-untyped-call]
    return stopping.exit_code
