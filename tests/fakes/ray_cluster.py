"""A Ray cluster on this machine, in a process of its own, which does what it is told line by line: the tests themselves
never import Ray. Run as a script it is that process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STARTS_S = 120.0


class RayCluster:
    """`address`, and what a test does to it."""

    def __init__(self, nodes: int, environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(nodes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=environ, text=True, start_new_session=True,
        )  # fmt: skip
        self.address: str = self._answer()

    def kill_node(self) -> None:
        """The node that joined last dies."""
        self._ask("kill")

    def add_node(self) -> None:
        """Another one joins."""
        self._ask("add")

    def add_node_of(self, python: Path) -> None:
        """Another one joins, of this Python."""
        self._ask(f"add {python}")

    def left(self) -> dict[str, Any]:
        """Actors that live, placement groups, and whether resources are taken."""
        left: dict[str, Any] = self._ask("left")
        return left

    def close(self) -> None:
        """End all of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _ask(self, word: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the cluster ended"
        return json.loads(line)


SETTINGS = {
    "RAY_AUTH_MODE": "disabled",  # it would write a token into the user's home
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",  # a node that is killed is dead in seconds, not in 15
}


@pytest.fixture
def ray_cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    """Three nodes, or as many as the parameter says, with a processor and a card each, as far as Ray is concerned."""
    folder = tempfile.mkdtemp(prefix="dx-ray-")  # short: it holds sockets
    own = {"RAY_TMPDIR": folder, "XDG_CACHE_HOME": f"{folder}/cache"}  # where our code is put
    for name, value in (SETTINGS | own).items():
        monkeypatch.setenv(name, value)
    made = RayCluster(getattr(request, "param", 3), dict(os.environ))
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


OURS = ("devexplorer", "__editable__", "msgspec", "safetensors", "pynvml", "nvidia_ml_py")
"""What a Python lacks that only has Ray and torch."""


def bare_python(folder: Path) -> Path:
    """A Python with what is installed here, but for DevExplorer and some of the packages that it needs."""
    venv.create(folder, with_pip=False, symlinks=True)
    own = next((folder / "lib").glob("python*/site-packages"))
    for place in (Path(path) for path in sys.path if Path(path).name in ("site-packages", "dist-packages")):
        for entry in place.iterdir():
            if not entry.name.startswith(OURS) and entry.suffix != ".pth" and not (own / entry.name).exists():
                (own / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def serve(nodes: int) -> None:
    """The process: a cluster, and one answer to each line."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import ray
    from ray._private.state import actors
    from ray.cluster_utils import Cluster
    from ray.util import placement_group_table

    def say(answer: object) -> None:
        print(json.dumps(answer), file=out, flush=True)

    def left() -> dict[str, object]:
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        has, free = ray.cluster_resources(), ray.available_resources()
        found = {
            "actors": sum(actor["State"] not in ("DEAD", 4) for actor in actors().values()),
            "groups": sum(group["state"] != "REMOVED" for group in placement_group_table().values()),
            "taken": [name for name in ("CPU", "GPU", "object_store_memory") if free.get(name, 0) < has.get(name, 0)],
        }
        ray.shutdown()
        return found

    head: dict[str, Any] = {"num_cpus": 1, "num_gpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    more = [cluster.add_node(num_cpus=1, num_gpus=1, labels={"rack": f"rack{node}"}) for node in range(1, nodes)]
    started: list[subprocess.Popen[bytes]] = []
    say(cluster.address)
    for line in sys.stdin:
        match line.strip():
            case "kill":
                cluster.remove_node(more.pop(), allow_graceful=False)
                say(None)
            case add if add.startswith("add "):
                started.append(_started(add.removeprefix("add "), cluster.address))
                say(None)
            case "add":
                more.append(cluster.add_node(num_cpus=1, num_gpus=1))
                say(None)
            case "left":
                say(left())
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    cluster.shutdown()


def _started(python: str, address: str) -> subprocess.Popen[bytes]:
    """A node of another Python, with all its processes in a group of their own."""
    words = ["-m", "ray.scripts.scripts", "start", f"--address={address}", "--num-cpus=1", "--num-gpus=1", "--block"]
    return subprocess.Popen([python, "-P", *words], stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    serve(int(sys.argv[1]))
    os._exit(0)
