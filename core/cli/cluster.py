"""`devexplorer cluster up`: a Ray cluster on this machine, for trying. Main thread; the nodes are processes of their
own, which end with it."""

from __future__ import annotations

import argparse

from devexplorer.core.base import BadInput, Unavailable, count_text, first_line, parse_count
from devexplorer.core.cli.terminal.refusal import say
from devexplorer.core.cli.terminal.stopping import Stopping

MOST_NODES = 16
"""Each is several processes with some hundred MiB together."""
FOREVER_S = 3600.0


def cluster(arguments: argparse.Namespace) -> int:
    """Start the nodes, print where they are, and end them on Ctrl-C."""
    nodes = parse_count(arguments.nodes, "--nodes")
    if nodes > MOST_NODES:
        raise BadInput(f"--nodes {nodes} is more than {MOST_NODES}, the most that is started on one machine")
    try:
        from ray.cluster_utils import Cluster
    except ImportError as error:
        raise Unavailable(f"Ray is not installed here ({error}); pip install 'devexplorer[cluster]'") from None
    with Stopping() as stopping:
        say(f"starting {count_text(nodes, 'node')}; this takes some seconds")
        try:
            made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        except Exception as error:  # whatever Ray raises: no space, no port, no memory
            raise Unavailable(f"Ray could not start a cluster: {first_line(error)}") from error
        try:
            for _ in range(nodes - 1):
                made.add_node(num_cpus=1)
            print(made.address, flush=True)
            say(f'watch it with: devexplorer fleet --cluster {made.address} --virtual "2x Tesla T4"; Ctrl-C ends it')
            while not stopping.wait(FOREVER_S):
                pass
        finally:
            made.shutdown()  # type: ignore[no-untyped-call]
    return stopping.exit_code
