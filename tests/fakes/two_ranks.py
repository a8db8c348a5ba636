"""A rank of a process group over gloo whose tensors are on a virtual GPU: run as a script, twice, by
tests/core/virtual/test_parallel.py.

Prints one JSON object: for each check the largest difference from the CPU, or the exception."""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from devexplorer.core.virtual.backend import add_virtual_gpus
from devexplorer.core.virtual.device.accounting import gpu_named

RANKS = 2


def difference(ours: Any, expected: Any) -> float:
    pairs = zip(ours, expected, strict=True) if isinstance(ours, (list, tuple)) else [(ours, expected)]
    assert all(one.device.type == "vgpu" for one, _ in pairs if isinstance(one, Tensor))
    pairs = zip(ours, expected, strict=True) if isinstance(ours, (list, tuple)) else [(ours, expected)]
    return max(float((one.cpu() - other).abs().max()) for one, other in pairs)


def collective(work: Callable[[Any], Any]) -> Callable[[int], float]:
    """The same on the rank's virtual GPU and on the CPU."""
    return lambda rank: difference(work(f"vgpu:{rank}"), work("cpu"))


def of(device: str, length: int = 4) -> Tensor:
    return (torch.arange(float(length)) + 10 * dist.get_rank()).to(device)


def all_reduce(device: str) -> Tensor:
    x = of(device)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()
    return x


def broadcast(device: str) -> Tensor:
    x = of(device)
    dist.broadcast(x, 1)
    return x


def all_gather(device: str) -> list[Tensor]:
    out = [torch.zeros(4, device=device) for _ in range(RANKS)]
    dist.all_gather(out, of(device))
    return out


def all_gather_into(device: str) -> Tensor:
    out = torch.zeros(8, device=device)
    dist.all_gather_into_tensor(out, of(device))
    return out


def reduce_scatter(device: str) -> Tensor:
    out = torch.zeros(2, device=device)
    dist.reduce_scatter_tensor(out, of(device))
    return out


def gather(device: str) -> list[Tensor]:
    out = [torch.zeros(4, device=device) for _ in range(RANKS)]
    dist.gather(of(device), out if dist.get_rank() == 0 else None, 0)
    return out


def scatter(device: str) -> Tensor:
    out = torch.zeros(4, device=device)
    dist.scatter(out, [of(device), of(device) + 1] if dist.get_rank() == 0 else None, 0)
    return out


def all_to_all(device: str) -> Tensor:
    out = torch.zeros(4, device=device)
    dist.all_to_all_single(out, of(device))
    return out


def send_and_receive(device: str) -> Tensor:
    x = of(device)
    dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)
    return x


def objects(device: str) -> Tensor:
    held: list[Any] = [{"x": of(device)} if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(held, 0)
    return held[0]["x"].to(device)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def trained(model: nn.Module, rank: int, device: str) -> list[Tensor]:
    """Parameters after three steps on the rank's own data."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(6, 4).to(device)).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def ddp(**options: Any) -> Callable[[int], float]:
    def check(rank: int) -> float:
        device = f"vgpu:{rank}"
        ours = DistributedDataParallel(net().to(device), device_ids=[rank], **options)
        return difference(trained(ours, rank, device), trained(DistributedDataParallel(net()), rank, "cpu"))

    return check


def sync_batch_norm(rank: int) -> float:
    """Against one batch norm over the batches of all ranks."""
    device = f"vgpu:{rank}"
    torch.manual_seed(5)
    values = torch.randn(RANKS, 4, 3, 5)
    alone, shared = nn.BatchNorm1d(3), nn.SyncBatchNorm(3).to(device)
    whole = values.reshape(-1, 3, 5).requires_grad_()
    alone(whole).pow(3).sum().backward()
    own = values[rank].to(device).requires_grad_()
    shared(own).pow(3).sum().backward()
    assert own.grad is not None
    assert whole.grad is not None
    weight = shared.weight.grad
    assert weight is not None
    dist.all_reduce(weight)
    assert alone.weight.grad is not None
    assert alone.running_mean is not None
    assert alone.running_var is not None
    return difference(
        [own.grad, weight, shared.running_mean, shared.running_var],
        [whole.grad[4 * rank : 4 * rank + 4], alone.weight.grad, alone.running_mean, alone.running_var],
    )


def fully_sharded(rank: int) -> float:
    from torch.distributed.fsdp import fully_shard

    device = f"vgpu:{rank}"
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    reference = DistributedDataParallel(copy.deepcopy(model))
    for one in reference.parameters():
        dist.broadcast(one.data, 0)
    model.load_state_dict(reference.module.state_dict())
    torch.vgpu.set_device(rank)  # type: ignore[attr-defined]
    mesh = init_device_mesh("vgpu", (RANKS,))
    model = model.to(device)
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    shards = trained(model, rank, device)
    expected = trained(reference, rank, "cpu")
    whole = [shard.full_tensor() for shard in shards]  # type: ignore[attr-defined]
    torch.vgpu.set_device(0)  # type: ignore[attr-defined]
    return max(float((one.cpu() - other).abs().max()) for one, other in zip(whole, expected, strict=True))


def other_devices(rank: int) -> float:
    dist.all_gather([torch.zeros(4), torch.zeros(4)], of("vgpu:0"))
    return 0.0


CHECKS: dict[str, Callable[[int], float]] = {
    **{work.__name__: collective(work) for work in (all_reduce, broadcast, all_gather, all_gather_into, reduce_scatter,
                                                    gather, scatter,
                                                    all_to_all, send_and_receive, objects)},
    "ddp": ddp(),
    "ddp_views": ddp(gradient_as_bucket_view=True),
    "ddp_unused": ddp(find_unused_parameters=True),
    "ddp_static": ddp(static_graph=True),
    "sync_batch_norm": sync_batch_norm,
    "fully_sharded": fully_sharded,
    "other_devices": other_devices,
}  # fmt: skip


def main(rank: int, file: str) -> None:
    warnings.simplefilter("ignore")  # torch's own, about its gloo functions
    torch.set_num_threads(1)
    add_virtual_gpus("2x Tesla T4")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{file}")
    found: dict[str, float | str] = {}
    for name, check in CHECKS.items():
        try:
            found[name] = check(rank)
        except RuntimeError as error:
            found[name] = str(error)
    found["busy"] = gpu_named(rank).clock.busy_seconds
    dist.destroy_process_group()
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
