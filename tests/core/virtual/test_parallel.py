"""Several virtual GPUs at once: `nn.DataParallel`, and process groups whose ranks compute on virtual GPUs."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fakes import two_ranks
from torch import nn
from torch.nn.parallel import comm

pytestmark = pytest.mark.usefixtures("virtual")
REFUSED = {
    "ddp_unused": "find_unused_parameters=True) copies through pinned memory, which virtual GPUs do not have; leave",
    "ddp_static": "static_graph=True) copies through pinned memory, which virtual GPUs do not have; leave",
    "other_devices": "needs all tensors of a rank on one device, but got cpu and vgpu:0",
}


class Noting(nn.Module):
    """Records the device of each replica."""

    seen: set[str]

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.seen = set()

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
        self.seen.add(f"{x.device} {self.inner[0].weight.device} vgpu:{torch.vgpu.current_device()}")
        return {"y": self.inner(x) * scale}


def test_data_parallel_gives_what_the_cpu_gives(virtual):
    x = torch.randn(6, 4)
    ours = Noting().to("vgpu:0").eval()
    parallel = nn.DataParallel(ours)
    plain = copy.deepcopy(ours).to("cpu")
    y = parallel(x, scale=2.0)["y"]
    y.square().mean().backward()
    expected = plain(x, scale=2.0)["y"]
    expected.square().mean().backward()
    assert y.device == torch.device("vgpu", 0)
    torch.testing.assert_close(y.cpu(), expected)
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad)
    assert ours.seen == {f"vgpu:{index} vgpu:{index} vgpu:{index}" for index in (0, 1)}
    assert virtual.gpu("vgpu:1").clock.busy_seconds > 0


def test_tensors_can_be_scattered_gathered_and_broadcast():
    x = torch.arange(10.0, device="vgpu:0").view(5, 2)
    pieces = comm.scatter(x, [0, 1], chunk_sizes=[2, 3])
    assert [(str(piece.device), piece.tolist()) for piece in pieces] == [
        ("vgpu:0", x[:2].tolist()),
        ("vgpu:1", x[2:].tolist()),
    ]
    assert torch.equal(comm.gather(pieces, destination="cpu"), x.cpu())
    together = comm.gather(pieces, destination=1)
    assert (together.device.index, together.tolist()) == (1, x.tolist())
    copies = comm.broadcast(x, [0, 1])
    assert copies[0] is x
    assert (copies[1].device.index, copies[1].tolist()) == (1, x.tolist())
    out = [torch.empty(5, 2, device="vgpu:1"), torch.empty(5, 2, device="vgpu:0")]
    comm.broadcast(x, out=out)
    assert [one.tolist() for one in out] == [x.tolist()] * 2
    assert comm.reduce_add(copies, destination=1).tolist() == (2 * x).tolist()
    gathered = torch.empty(5, 2, device="vgpu:1")
    assert comm.gather(pieces, out=gathered).tolist() == x.tolist()


@pytest.fixture(scope="module")
def ranks(
    tmp_path_factory: pytest.TempPathFactory, warm_popen: type[subprocess.Popen[str]]
) -> list[dict[str, float | str]]:
    """The results of both ranks."""
    file = tmp_path_factory.mktemp("ranks") / "meeting"
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": str(Path(two_ranks.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, two_ranks.__file__]
    started = [
        warm_popen(
            [*command, str(rank), str(file)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(two_ranks.RANKS)
    ]
    found = []
    try:
        for process in started:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            found.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in started:
            process.kill()
            process.wait()
    return found


@pytest.mark.parametrize("check", [name for name in two_ranks.CHECKS if name not in REFUSED])
def test_a_process_group_over_gloo_gives_what_the_cpu_gives(check, ranks):
    assert [found[check] for found in ranks] == pytest.approx([0.0, 0.0], abs=1e-4)


@pytest.mark.parametrize("check", REFUSED)
def test_what_a_process_group_cannot_do_is_refused_in_a_line(check, ranks):
    for found in ranks:
        assert REFUSED[check] in str(found[check])
        assert "\n" not in str(found[check])


def test_collectives_take_simulated_time(ranks):
    assert all(float(found["busy"]) > 0 for found in ranks)
