"""Tensors: views, in-place, indexing, reductions, linear algebra, random numbers."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from virtual_features import OnHost, Topic

feature = Topic("Tensors")


def values(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape).to(device)


@feature("views share memory")
def views(device: str) -> Any:
    x = torch.arange(24.0, device=device)
    square = x.view(2, 3, 4).transpose(0, 1)[1:, :, ::2]
    square.mul_(10)
    flat = x.unfold(0, 4, 2)
    return x, square, flat, x._base is None, square._is_view(), x.as_strided((3, 3), (1, 2), 1), x.view(torch.int32)


@feature("in-place operations")
def in_place(device: str) -> Any:
    x = values(device, 4, 4)
    y = x
    y += 1
    y.clamp_(min=0).addcmul_(y, y, value=0.5).t_()
    y[0].zero_()
    y.masked_fill_(y > 2, -1).sub_(3).abs_().sqrt_().fill_diagonal_(7)
    return x, y is x, x._version


@feature("basic indexing")
def basic_indexing(device: str) -> Any:
    x = values(device, 4, 5, 6)
    return x[1], x[..., 2], x[:, None, 1:3], x[-1, :, ::2], x[0, 0, 0], x.select(1, 2), x.narrow(2, 1, 3)


@feature("advanced indexing")
def advanced_indexing(device: str) -> Any:
    x = values(device, 4, 5)
    rows = torch.tensor([3, 0, 0], device=device)
    return x[rows], x[rows, torch.tensor([1, 2, 3])], x[x > 0], x[[True, False, True, False]], x[:, rows], x.take(rows)


@feature("assignment by index")
def assignment(device: str) -> Any:
    x = torch.zeros(4, 5, device=device)
    x[1] = 3
    x[torch.tensor([0, 2], device=device), 1:3] = values(device, 2, 2)
    x[x == 0] = -1
    x.index_put_((torch.tensor([0, 0, 1], device=device),), torch.ones(3, 5, device=device), accumulate=True)
    x.index_add_(0, torch.tensor([1, 1], device=device), torch.ones(2, 5, device=device)).index_fill_(
        1, torch.tensor([4], device=device), 9
    )
    return x, x.index_copy(0, torch.tensor([2], device=device), torch.zeros(1, 5, device=device))


@feature("complex numbers")
def complex_numbers(device: str) -> Any:
    z = torch.complex(values(device, 3), values(device, 3))
    return (
        z * z.conj(),
        z.abs(),
        z.angle(),
        torch.view_as_real(z),
        z.real,
        z.imag,
        z.conj().resolve_conj(),
        (z.conj() @ z),
    )


@feature("types and promotion")
def promotion(device: str) -> Any:
    x = torch.arange(4, device=device)
    return (
        x + 1.5,
        x / 2,
        x // 2,
        x.half() * 2,
        x.bool() | True,
        x.to(torch.bfloat16).float(),
        x.double() + x.float(),
        x.type(torch.uint8),
        x << 2,
        torch.result_type(x, 1.0) is torch.float32,
        x.float().to(torch.float8_e4m3fn).float(),
    )


@feature("`out=` arguments")
def out_arguments(device: str) -> Any:
    x, out, indices = (
        values(device, 3, 3),
        torch.empty(0, device=device),
        torch.empty(0, dtype=torch.long, device=device),
    )
    result = torch.mm(x, x, out=out)
    torch.max(x, 1, out=(torch.empty(3, device=device), indices))
    parts = [torch.empty(1, 3, device=device) for _ in range(3)]
    torch.split_copy(x, 1, out=parts)
    return result, result is out, indices, parts


@feature("channels last")
def channels_last(device: str) -> Any:
    x = values(device, 2, 3, 4, 5).to(memory_format=torch.channels_last)
    return x, x.is_contiguous(memory_format=torch.channels_last), torch.relu(x), torch.empty_like(x).stride()


@feature("resizing and storages")
def resizing(device: str) -> Any:
    x = torch.arange(6.0, device=device)
    y = torch.empty(0, device=device).set_(x)
    z = x[2:]
    same = x.untyped_storage().data_ptr() == z.untyped_storage().data_ptr()
    x.resize_(4)
    return (
        x,
        y,
        z.storage_offset(),
        same,
        z.untyped_storage().nbytes(),
        z.data_ptr() - x.data_ptr(),
        z.nbytes,
        z.element_size(),
    )


@feature("storages without a tensor")
def storages(device: str) -> Any:
    made = (
        torch.UntypedStorage(8, device=device),
        torch.UntypedStorage(4).to(device=device),
        torch.UntypedStorage([1, 2, 3], device=device),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        typed = torch.TypedStorage(2, dtype=torch.float32, device=device)
    return [(one.nbytes(), str(one.device) == device) for one in (*made, typed)], list(made[2].cpu())


@feature("random numbers")
def random_numbers(device: str) -> Any:
    probabilities = torch.full((5,), 0.5, device=device)
    return (
        torch.rand(3, device=device),
        torch.randn(3, device=device),
        torch.randint(9, (3,), device=device),
        torch.randperm(9, device=device),
        torch.bernoulli(probabilities),
        torch.multinomial(probabilities, 3),
        torch.poisson(probabilities),
        torch.normal(probabilities, 1.0),
        torch.empty(3, device=device).exponential_(),
        torch.rand_like(probabilities),
        torch.nn.functional.gumbel_softmax(probabilities),
    )


@feature("factories")
def factories(device: str) -> Any:
    x = torch.ones(2, device=device)
    return (
        torch.zeros(2, device=device),
        torch.full((2,), 3, device=device),
        torch.arange(0, 5, 2, device=device),
        torch.linspace(0, 1, 3, device=device),
        torch.eye(2, device=device),
        torch.tril_indices(3, 3, device=device),
        torch.as_tensor([1, 2], device=device),
        x.new_zeros(2),
        x.new_tensor([1]),
        torch.logspace(0, 2, 3, device=device),
        torch.vander(x),
        torch.asarray([1.0], device=device),
        torch.scalar_tensor(3, device=device),
    )


@feature("default device")
def default_device(device: str) -> Any:
    with torch.device(device):
        return torch.zeros(2), torch.tensor([1.0]), torch.nn.Linear(1, 1, bias=False).weight.shape


@feature("printing and formatting")
def printing(device: str) -> Any:
    x = torch.arange(3.0, device=device)
    text = repr(x).replace(f", device='{device}'", "")
    return (
        text,
        f"{x[1]:.2f}",
        str(x.shape),
        len(x),
        list(map(float, x)),
        x.tolist(),
        x[2].item(),
        int(x[1]),
        bool(x[0]),
        x.ndim,
    )


@feature("copies between devices")
def copies(device: str) -> Any:
    x = torch.arange(4.0)
    moved = x.to(device)
    back = torch.empty(4)
    back.copy_(moved)
    return (
        moved,
        OnHost(back),
        OnHost(moved.cpu()),
        moved.to(device) is moved,
        moved.to(device, copy=True) is moved,
        moved.to(x.device, torch.int32).tolist(),
    )


@feature("sparse tensors (COO)")
def sparse(device: str) -> Any:
    x = torch.eye(3, device=device).to_sparse()
    return (x @ torch.ones(3, 1, device=device)).sum()


@feature("sparse tensors (CSR)")
def sparse_csr(device: str) -> Any:
    return torch.eye(3, device=device).to_sparse_csr().values()


@feature("nested tensors")
def nested(device: str) -> Any:
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device=device, layout=torch.jagged)
    return (x * 2).values()


@feature("quantised tensors")
def quantised(device: str) -> Any:
    return torch.quantize_per_tensor(torch.ones(3, device=device), 0.1, 0, torch.quint8).dequantize()


@feature("fake quantisation")
def fake_quantised(device: str) -> Any:
    x = values(device, 4).requires_grad_()
    y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
    y.sum().backward()
    return y, x.grad


@feature("lists of tensors (foreach)")
def foreach(device: str) -> Any:
    a, b = [values(device, 3), values(device, 2)], [values(device, 3), values(device, 2)]
    torch._foreach_add_(a, b)
    torch._foreach_mul_(a, 2.0)
    return a, torch._foreach_norm(a), torch._foreach_lerp(a, b, 0.5), torch._foreach_maximum(a, b)
