"""Modules: layers, losses, parametrisations, `nn.Module` itself."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune, rnn

from devexplorer.core.virtual.backend import move_lazily
from virtual_features import Topic

feature = Topic("Modules")


def built(module: nn.Module, device: str) -> nn.Module:
    return module.to(device)


def data(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape).to(device).requires_grad_()


def trained(module: nn.Module, *inputs: Any) -> Any:
    """Output and gradients of a step."""
    output = module(*inputs)
    first = output[0] if isinstance(output, tuple) else output
    first.square().mean().backward()
    held = [one for one in inputs if isinstance(one, torch.Tensor) and one.is_leaf and one.requires_grad]
    return first.detach(), [one.grad for one in (*held, *module.parameters())]


@feature("moves of modules, casts")
def moves(device: str) -> Any:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    weight = module[0].weight
    moved = module.to(device)
    same = moved is module and module[0].weight is weight
    half = module.half()[0].weight.detach().clone()
    return (
        same,
        half,
        module.double()[1].running_mean,
        {name: value.dtype for name, value in module.float().state_dict().items()},
    )


@feature("an optimizer made before the model moves away")
def identity(device: str) -> Any:
    module = nn.Linear(2, 1).to(device)
    weight = module.weight
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    module.to("cpu")
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return module.weight is weight, module.weight.tolist(), module.weight.device.type


@feature("state_dict and load_state_dict")
def states(device: str) -> Any:
    source, target, other = (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(device) for _ in range(3))
    weight = target[0].weight
    keys = target.load_state_dict(source.state_dict())
    other.load_state_dict({name: value.clone() for name, value in source.state_dict().items()}, assign=True)
    partly = target.load_state_dict({"0.weight": torch.ones(3, 2)}, strict=False)
    return (
        list(target.parameters()),
        target[0].weight is weight,
        str(keys),
        list(other.state_dict().values()),
        partly.missing_keys,
    )


@feature("copies of modules (deepcopy)")
def copied(device: str) -> Any:
    module = nn.Linear(2, 2).to(device)
    module.tied = module.weight
    module.register_buffer("steps", torch.zeros(1, device=device), persistent=False)
    other = copy.deepcopy(module)
    other.weight.data.fill_(3)
    return (
        module.weight,
        other.weight,
        other.tied is other.weight,
        other.steps,
        list(other.state_dict()),
        type(other.weight) is type(module.weight),
    )


@feature("ParameterList, ParameterDict, buffers")
def containers(device: str) -> Any:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items = nn.ParameterList([nn.Parameter(torch.ones(2)), torch.zeros(1)])
            self.named = nn.ParameterDict({"a": nn.Parameter(torch.ones(1))})
            self.parts = nn.ModuleList([nn.Linear(1, 1, bias=False)])
            self.register_buffer("mask", torch.tensor([True, False]))

    module = Own().to(device)
    module.items.append(nn.Parameter(torch.full((1,), 2.0, device=device)))
    return (
        list(module.named_buffers()),
        [name for name, _ in module.named_parameters()],
        list(module.items),
        module.named["a"],
    )


@feature("convolutions")
def convolutions(device: str) -> Any:
    return [
        trained(built(module, device), data(device, *shape))
        for module, shape in (
            (nn.Conv1d(2, 3, 3), (2, 2, 8)),
            (nn.Conv2d(2, 4, 3, padding=1, groups=2), (2, 2, 6, 6)),
            (nn.Conv3d(1, 2, 2), (1, 1, 4, 4, 4)),
            (nn.ConvTranspose2d(2, 3, 3, stride=2), (1, 2, 4, 4)),
            (nn.ConvTranspose1d(2, 3, 3), (1, 2, 4)),
            (nn.Conv2d(2, 2, 3, padding="same", padding_mode="reflect", dilation=2), (1, 2, 8, 8)),
        )
    ]


@feature("normalisation layers")
def norms(device: str) -> Any:
    x = (2, 4, 3, 3)
    modules = (
        nn.BatchNorm2d(4),
        nn.GroupNorm(2, 4),
        nn.LayerNorm([4, 3, 3]),
        nn.InstanceNorm2d(4, affine=True),
        nn.RMSNorm([3]),
        nn.LocalResponseNorm(2),
    )
    results = [trained(built(module, device), data(device, *x)) for module in modules]
    return (
        results,
        modules[0].running_mean,
        modules[0].num_batches_tracked,
        modules[0].eval()(data(device, *x)).detach(),
    )


@feature("CTC loss")
def ctc(device: str) -> Any:
    x = data(device, 12, 2, 5)
    targets = torch.randint(1, 5, (2, 4)).to(device)
    losses = []
    for lengths in ((torch.tensor([12, 10]), torch.tensor([4, 3])), ((12, 10), (4, 3))):
        losses.append(functional.ctc_loss(x.log_softmax(2), targets, *lengths))
    sum(losses).backward()
    return [one.detach() for one in losses], x.grad


@feature("RNN, LSTM, GRU")
def recurrent(device: str) -> Any:
    x = data(device, 3, 5, 4)
    results = [
        trained(built(kind(4, 6, num_layers=2, bidirectional=True, batch_first=True), device), x)
        for kind in (nn.RNN, nn.LSTM, nn.GRU)
    ]
    cell = built(nn.LSTMCell(4, 3), device)
    return results, cell(x[:, 0])[0].detach(), trained(built(nn.LSTM(4, 6, proj_size=2), device), x)


@feature("packed sequences")
def packed(device: str) -> Any:
    x = data(device, 3, 5, 4)
    module = built(nn.LSTM(4, 6, batch_first=True), device)
    lengths = torch.tensor([5, 2, 3])
    sequence = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    output, sizes = rnn.pad_packed_sequence(module(sequence)[0], batch_first=True)
    output.sum().backward()
    return (
        output.detach(),
        sizes.tolist(),
        x.grad,
        sequence.batch_sizes.tolist(),
        rnn.pad_sequence([x[0], x[1, :2]]).detach(),
    )


@feature("Embedding")
def embedding(device: str) -> Any:
    index = torch.tensor([[1, 2], [0, 1]], device=device)
    module = built(nn.Embedding(5, 3, padding_idx=0, max_norm=1.0), device)
    module(index).sum().backward()
    return module.weight, module.weight.grad


@feature("Embedding with sparse gradients")
def sparse_embedding(device: str) -> Any:
    module = built(nn.Embedding(5, 3, sparse=True), device)
    module(torch.tensor([1, 2], device=device)).sum().backward()
    return module.weight.grad.to_dense()


@feature("EmbeddingBag")
def bags(device: str) -> Any:
    index, offsets = torch.tensor([1, 2, 3, 4, 0], device=device), torch.tensor([0, 2], device=device)
    results = []
    for mode in ("sum", "mean", "max"):
        module = built(nn.EmbeddingBag(5, 3, mode=mode), device)
        module(index, offsets).sum().backward()
        results.append((module(index, offsets).detach(), module.weight.grad))
    return results


@feature("MultiheadAttention")
def attention(device: str) -> Any:
    module = built(nn.MultiheadAttention(8, 2, batch_first=True), device)
    x = data(device, 2, 5, 8)
    mask = torch.zeros(2, 5, dtype=torch.bool, device=device)
    mask[0, 3:] = True
    output, weights = module(x, x, x, key_padding_mask=mask)
    return trained(module, x, x, x), output.detach(), weights.detach(), module(x, x, x, need_weights=False)[0].detach()


@feature("scaled_dot_product_attention")
def sdpa(device: str) -> Any:
    q = data(device, 2, 2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool, device=device).tril()
    results = [
        functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        functional.scaled_dot_product_attention(q, q, q, attn_mask=mask),
    ]
    torch.stack(results).sum().backward()
    return [one.detach().contiguous() for one in results], q.grad


@feature("TransformerEncoder")
def encoder(device: str) -> Any:
    module = built(
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        ),
        device,
    )
    x = data(device, 2, 5, 8)
    results = trained(module, x)
    mask = torch.zeros(2, 5, dtype=torch.bool, device=device)
    mask[0, 3:] = True
    with torch.no_grad():
        return results, module.eval()(x), module(x, src_key_padding_mask=mask)[1]


@feature("Transformer with decoder")
def transformer(device: str) -> Any:
    module = built(nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True), device)
    mask = nn.Transformer.generate_square_subsequent_mask(4, device=device)
    x, y = data(device, 2, 5, 8), data(device, 2, 4, 8)
    output = module(x, y, tgt_mask=mask)
    output.sum().backward()
    return output.detach(), x.grad, y.grad


@feature("weight_norm, spectral_norm, orthogonal (parametrizations)")
def parametrised(device: str) -> Any:
    results = []
    for way in (parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal):
        module = way(nn.Linear(3, 3)).to(device)
        results.append(trained(module, data(device, 2, 3)))
        results.append((list(module.state_dict()), parametrize.is_parametrized(module)))
    parametrize.remove_parametrizations(module, "weight")
    return results, module.weight.detach()


@feature("weight_norm, spectral_norm (deprecated)")
def deprecated_norms(device: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        first, second = (
            nn.utils.weight_norm(nn.Linear(3, 2)).to(device),
            nn.utils.spectral_norm(nn.Linear(3, 2)).to(device),
        )
    results = trained(first, data(device, 2, 3)), trained(second, data(device, 2, 3))
    nn.utils.remove_weight_norm(first)
    return results, first.weight.detach()


@feature("pruning")
def pruning(device: str) -> Any:
    module = nn.Linear(4, 4).to(device)
    prune.l1_unstructured(module, "weight", 0.5)
    prune.random_unstructured(module, "bias", 0.5)
    results = trained(module, data(device, 2, 4))
    prune.remove(module, "weight")
    return results, module.weight.detach(), module.bias_mask


@feature("initialisation")
def initialisation(device: str) -> Any:
    init = nn.init
    return [
        way(torch.empty(4, 4, device=device))
        for way in (
            init.xavier_uniform_,
            init.xavier_normal_,
            init.kaiming_uniform_,
            init.kaiming_normal_,
            init.orthogonal_,
            init.trunc_normal_,
            init.eye_,
            init.ones_,
            lambda x: init.sparse_(x, 0.5),
            lambda x: init.constant_(x, 3),
        )
    ], nn.utils.skip_init(nn.Linear, 2, 2, device=device).weight.shape


@feature("lazy modules")
def lazy(device: str) -> Any:
    module = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    move_lazily(module, device)
    return (
        module(torch.ones(2, 4, device=device)).shape,
        type(module[0]).__name__,
        module[0].weight.device == torch.device(device),
    )


@feature("lazy modules moved by Module.to")
def lazy_moved(device: str) -> Any:
    module = nn.LazyLinear(3).to(device)
    return module(torch.ones(2, 4, device=device)).shape


@feature("clipping of gradients")
def clipping(device: str) -> Any:
    module = nn.Linear(3, 3).to(device)
    (module(data(device, 2, 3)) * 100).sum().backward()
    norms = [nn.utils.clip_grad_norm_(module.parameters(), 1.0, foreach=foreach) for foreach in (False, True)]
    nn.utils.clip_grad_value_(module.parameters(), 0.05)
    return norms, [one.grad for one in module.parameters()], nn.utils.get_total_norm([module.weight.grad])


@feature("parameters as one vector")
def vectors(device: str) -> Any:
    module = nn.Linear(2, 2).to(device)
    vector = nn.utils.parameters_to_vector(module.parameters())
    nn.utils.vector_to_parameters(vector * 2, module.parameters())
    return vector.detach(), list(module.parameters())


@feature("requires_grad_, zero_grad, train, apply")
def housekeeping(device: str) -> Any:
    module = nn.Linear(2, 2).to(device)
    module(torch.ones(1, 2, device=device)).sum().backward()
    module.zero_grad(set_to_none=False)
    zeros = module.weight.grad.clone()
    module.zero_grad()
    module.requires_grad_(False).apply(lambda part: part.eval())
    return (
        zeros,
        module.weight.grad is None,
        module.weight.requires_grad,
        module.training,
        isinstance(module.weight, nn.Parameter),
    )


@feature("modules made on the device and on meta")
def made_there(device: str) -> Any:
    here, empty = nn.Linear(2, 2, device=device), nn.Linear(2, 2, device="meta").to_empty(device=device)
    empty.load_state_dict(here.state_dict())
    return here.weight, empty.weight, isinstance(empty.weight, nn.Parameter)


@feature("fusing of layers")
def fusing(device: str) -> Any:
    convolution, norm = nn.Conv2d(2, 3, 3).to(device).eval(), nn.BatchNorm2d(3).to(device).eval()
    return nn.utils.fuse_conv_bn_eval(convolution, norm)(data(device, 1, 2, 5, 5)).detach()


@feature("dynamic quantisation")
def dynamic_quantisation(device: str) -> Any:
    module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 2)).to(device), {nn.Linear})
    return module(torch.ones(1, 4, device=device))


@feature("averaged models (SWA, EMA)")
def averaged(device: str) -> Any:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device)
    mean, smooth = (
        torch.optim.swa_utils.AveragedModel(module, device, multi_avg_fn=way)
        for way in (None, torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    )
    for step in range(3):
        module[0].weight.data.fill_(step)
        mean.update_parameters(module)
        smooth.update_parameters(module)
    torch.optim.swa_utils.update_bn([torch.ones(4, 2)], mean, device)
    return list(mean.state_dict().values())[1:], list(smooth.parameters())
