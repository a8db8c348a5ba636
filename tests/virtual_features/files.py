"""Files, copies, numpy, other processes, data loading."""

from __future__ import annotations

import copy
import io
from multiprocessing import reduction, resource_sharer
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from virtual_features import OnHost, Topic

feature = Topic("Files and data")


def through_file(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


@feature("save and load")
def save(device: str) -> Any:
    x = torch.arange(4.0, device=device)
    module = nn.Linear(2, 2).to(device)
    loaded = through_file({"x": x, "module": module.state_dict()})
    return (
        OnHost(loaded["x"]),
        OnHost(list(loaded["module"].values())),
        through_file(x, map_location=device),
        through_file(torch.ones(2), map_location=device),
    )


@feature("load with every kind of map_location")
def map_location(device: str) -> Any:
    x = torch.arange(4.0, device=device)
    return [
        through_file(x, map_location=one, weights_only=True) for one in (device, torch.device(device), {"cpu": device})
    ], [through_file(x, map_location=lambda storage, location: storage).tolist()]


@feature("a whole module in a file")
def whole(device: str) -> Any:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device)
    module(torch.ones(3, 2, device=device)).sum().backward()
    loaded = through_file(module, map_location=device, weights_only=False)
    return list(loaded.state_dict().values()), [isinstance(one, nn.Parameter) for one in loaded.parameters()]


@feature("copy and deepcopy")
def copies(device: str) -> Any:
    x = torch.randn(3).to(device).requires_grad_()
    (x * 2).sum().backward()
    deep, shallow = copy.deepcopy(x), copy.copy(x.detach())
    try:
        copy.deepcopy(x * 2)
    except RuntimeError as error:
        said = str(error)[:30]
    return deep, deep.grad, deep is x, shallow, said


@feature("views that shared memory, after deepcopy")
def shared_views(device: str) -> Any:
    x = torch.arange(4.0, device=device)
    one, other = copy.deepcopy([x, x[:2]])
    one.mul_(2)
    return other


@feature("views that shared memory, through a file")
def saved_views(device: str) -> Any:
    x = torch.arange(4.0, device=device)
    one, other = through_file([x, x[:2]])
    one.mul_(2)
    return OnHost(other)


@feature("safetensors")
def safe(device: str) -> Any:
    data = safetensors.torch.save({"x": torch.arange(4.0, device=device)})
    return OnHost(safetensors.torch.load(data)["x"])


@feature("numpy: from arrays, and refused without .cpu()")
def numpy_refused(device: str) -> Any:
    x = torch.from_numpy(np.arange(3.0)).to(device)
    made = torch.as_tensor(np.ones(2), device=device), torch.tensor(np.float32(3), device=device)
    refused = 0
    for way in (x.numpy, lambda: np.asarray(x), lambda: np.add(x, 1)):
        try:
            way()
        except TypeError as error:
            refused += "Use Tensor.cpu() to copy the tensor to host memory first" in str(error)
    assert device == "cpu" or refused == 3
    return x, made, x.cpu().numpy().tolist(), x.numpy(force=True).tolist()


@feature("DLPack")
def dlpack(device: str) -> Any:
    return torch.utils.dlpack.from_dlpack(torch.arange(3.0, device=device))


@feature("__cuda_array_interface__")
def array_interface(device: str) -> Any:
    return hasattr(torch.arange(3.0, device=device), "__cuda_array_interface__")


@feature("share_memory_")
def shared(device: str) -> Any:
    return torch.arange(3.0, device=device).share_memory_()


@feature("tensors through a queue of torch.multiprocessing")
def queue(device: str) -> Any:
    pickled = reduction.ForkingPickler.dumps(torch.arange(3.0, device=device))
    try:
        return OnHost(reduction.ForkingPickler.loads(pickled))
    finally:
        resource_sharer.stop(10)


@feature("DataLoader, shuffled by a generator")
def loader(device: str) -> Any:
    dataset = TensorDataset(torch.arange(6.0).to(device), torch.arange(6).to(device))
    batches = DataLoader(dataset, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(3))
    return [list(batch) for batch in batches]


@feature("DataLoader with pin_memory")
def pinned(device: str) -> Any:
    return [
        batch[0].to(device, non_blocking=True)
        for batch in DataLoader(TensorDataset(torch.arange(6.0)), batch_size=3, pin_memory=True)
    ]


@feature("pickle of a generator")
def generator(device: str) -> Any:
    original = torch.Generator(device=device).manual_seed(4)
    torch.rand(3, generator=original, device=device)
    other = copy.deepcopy(original)
    return (
        torch.rand(3, generator=original, device=device),
        torch.rand(3, generator=other, device=device),
        other.initial_seed(),
    )


@feature("hashing, identity, containers")
def hashing(device: str) -> Any:
    x, y = torch.ones(2, device=device), torch.ones(2, device=device)
    held = {x: "x", y: "y"}
    return held[x], held[y], x in [x], hash(x) == hash(y), x is x.view_as(x), [one.tolist() for one in x], 1.0 in x


@feature("custom attributes on a tensor")
def attributes(device: str) -> Any:
    x = torch.ones(2, device=device)
    x.note = "kept"
    y = nn.Parameter(x)
    return (
        x.note,
        copy.deepcopy(x).note,
        isinstance(x, torch.Tensor),
        isinstance(x, nn.Parameter),
        isinstance(y, nn.Parameter),
        torch.is_tensor(x),
    )


@feature("a custom tensor subclass")
def subclass(device: str) -> Any:
    class Own(torch.Tensor):
        pass

    x = torch.ones(2, device=device).as_subclass(Own)
    return type(x).__name__, type(x + 1).__name__, (x + 1).sum().item()


@feature("a custom wrapper subclass")
def wrapper(device: str) -> Any:
    class Logged(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*(one.inner if isinstance(one, Logged) else one for one in args), **(kwargs or {}))

    return Logged(torch.ones(2, device=device)) + torch.ones(2, device=device)
