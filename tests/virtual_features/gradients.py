"""Autograd: graphs, hooks, custom functions, modes, torch.func, mixed precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd import Function, forward_ad, functional
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    increment_version,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from virtual_features import OnHost, Topic

feature = Topic("Autograd")


def leaf(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape).to(device).requires_grad_()


def net(device: str) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)


def grads(model: nn.Module) -> list[torch.Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


@feature("backward")
def backward(device: str) -> Any:
    model, x = net(device), leaf(device, 5, 3)
    y = model(x).square().mean()
    y.backward(retain_graph=True)
    y.backward()
    return grads(model), x.grad, type(y.grad_fn).__name__, y.requires_grad


@feature("gradients of gradients")
def double(device: str) -> Any:
    x = leaf(device, 4)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    unused = torch.autograd.grad(x.sum(), [x, leaf(device, 1)], allow_unused=True)[1]
    return first.detach(), second, unused is None


@feature("tensor hooks")
def tensor_hooks(device: str) -> Any:
    x, seen = leaf(device, 3), []
    x.register_hook(lambda gradient: gradient * 2)
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.clone()))
    y = x * 3
    y.retain_grad()
    handle = y.register_hook(lambda gradient: gradient + 1)
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    return x.grad, y.grad, seen


@feature("module hooks")
def module_hooks(device: str) -> Any:
    model, seen = net(device), []
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    model[0].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 0.5,))
    model[2].register_full_backward_pre_hook(lambda module, outputs: (outputs[0] * 3,))
    model[2].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].clone()))
    x = leaf(device, 2, 3)
    model(x).sum().backward()
    return x.grad, grads(model), seen


@feature("hooks on gradient accumulators")
def accumulators(device: str) -> Any:
    x, seen = leaf(device, 3), []
    node = x.view_as(x).grad_fn.next_functions[0][0]
    node.register_hook(lambda inputs, outputs: seen.append("post"))
    node.register_prehook(lambda gradients: (gradients[0] * 2,))
    (x * 2).sum().backward()
    return x.grad, seen, type(node).__name__, node.variable is x


@feature("hooks on several gradients")
def multi_hooks(device: str) -> Any:
    a, b, seen = leaf(device, 2), leaf(device, 2), []
    handle = register_multi_grad_hook([a, b], lambda gradients: seen.append([one.clone() for one in gradients]))
    (a * b).sum().backward()
    handle.remove()
    return seen


class Cube(Function):
    @staticmethod
    def forward(x, factor):
        return factor * x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.factor = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * ctx.factor * x**2, None

    @staticmethod
    def jvp(ctx, tangent, _):
        (x,) = ctx.saved_tensors
        return tangent * 3 * ctx.factor * x**2

    @staticmethod
    def vmap(info, dims, x, factor):
        return Cube.apply(x, factor), dims[0]


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        assert ctx.needs_input_grad[0]
        return gradient * 2


@feature("custom functions (autograd.Function)")
def own_function(device: str) -> Any:
    x = leaf(device, 4)
    y = Cube.apply(x, 2.0)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    z = InPlace.apply(x * 1)
    z.sum().backward()
    return y.detach(), first.detach(), second, z.detach(), x.grad, vmap(lambda one: Cube.apply(one, 2.0))(x.detach())


@feature("saved tensor hooks")
def saved_hooks(device: str) -> Any:
    x, packed = leaf(device, 3), []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tuple(tensor.shape))
        return tensor.cpu()

    with saved_tensors_hooks(pack, lambda tensor: tensor.to(device)):
        y = (x.exp() * x).sum()
    y.backward()
    return x.grad, packed


@feature("activations kept on the CPU (save_on_cpu)")
def on_cpu(device: str) -> Any:
    x = leaf(device, 3)
    with save_on_cpu():
        y = x.exp().sum()
    y.backward()
    return x.grad


@feature("checkpointing")
def checkpoints(device: str) -> Any:
    model, x = net(device), leaf(device, 2, 3)
    checkpoint(model, x, use_reentrant=False).sum().backward()
    checkpoint(model, x, use_reentrant=True).sum().backward()
    checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
    dropped = checkpoint(nn.functional.dropout, x, use_reentrant=False)
    dropped.sum().backward()
    return x.grad, grads(model)


@feature("anomaly mode")
def anomaly(device: str) -> Any:
    x = leaf(device, 2)
    try:
        with torch.autograd.detect_anomaly(check_nan=True):
            (x * 0 / 0).sum().backward()
    except RuntimeError as error:
        return str(error)
    return None


@feature("no_grad, enable_grad, set_grad_enabled")
def grad_modes(device: str) -> Any:
    x = leaf(device, 2)
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 2
    with torch.set_grad_enabled(False):
        c = x + 1
    return a, b.detach(), b.requires_grad, c, x.detach(), x.detach().requires_grad


@feature("inference mode")
def inference(device: str) -> Any:
    model, x = net(device), leaf(device, 2, 3)
    with torch.inference_mode():
        y = model(x)
        z = y.view(-1)[1:].mul_(2)
        w = x.view(-1)
    return y.is_inference(), z.is_inference(), w.is_inference(), y.clone(), z.clone(), w.detach().clone()


@feature("changes of saved tensors are noticed")
def versions(device: str) -> Any:
    x = leaf(device, 2)
    y = x * 1
    z = y.exp()
    z.add_(1)
    increment_version(y)
    try:
        z.sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error), y._version
    return None


@feature("`.data` and version counters")
def data(device: str) -> Any:
    x = leaf(device, 2)
    y = (x**2).sum()
    x.data.mul_(3)
    y.backward()
    return x.detach(), x.grad, x._version


@feature("saved tensors that may change")
def mutation(device: str) -> Any:
    x = leaf(device, 2)
    with allow_mutation_on_saved_tensors():
        y = x.clone()
        z = y.sin()
        y.mul_(2)
        z.sum().backward()
    return x.grad


@feature("gradcheck")
def gradcheck(device: str) -> Any:
    x = torch.randn(3, dtype=torch.float64).to(device).requires_grad_()
    return torch.autograd.gradcheck(lambda one: (one**2).sin(), x), torch.autograd.gradgradcheck(lambda one: one**3, x)


@feature("forward-mode differentiation")
def forward_mode(device: str) -> Any:
    x, tangent = torch.randn(3).to(device), torch.ones(3, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        y = forward_ad.unpack_dual(dual.sin() * 2)
    return y.primal, y.tangent


@feature("torch.autograd.functional")
def autograd_functional(device: str) -> Any:
    x = torch.randn(3).to(device)
    return (
        functional.jacobian(torch.exp, x),
        functional.hessian(lambda one: (one**3).sum(), x),
        functional.vjp(torch.exp, x, torch.ones_like(x)),
        functional.jvp(torch.exp, x, torch.ones_like(x)),
        functional.hvp(lambda one: (one**3).sum(), x, torch.ones_like(x)),
    )


@feature("torch.func: grad, jacobians, products")
def func(device: str) -> Any:
    x = torch.randn(3).to(device)

    def cube(one: torch.Tensor) -> torch.Tensor:
        return (one**3).sum()

    output, pull = vjp(torch.sin, x)
    linear_output, push = linearize(torch.sin, x)
    return (
        grad(cube)(x),
        jacrev(torch.sin)(x),
        jacfwd(torch.sin)(x),
        hessian(cube)(x),
        output,
        pull(torch.ones_like(x)),
        linear_output,
        push(torch.ones_like(x)),
        jvp(torch.sin, (x,), (torch.ones_like(x),)),
        grad(lambda one: grad(cube)(one).sum())(x),
    )


@feature("torch.func: vmap")
def vmapped(device: str) -> Any:
    a, b = torch.randn(5, 3).to(device), torch.randn(5, 3).to(device)
    model = net(device)
    losses = vmap(grad(lambda parameters, x: functional_call(model, parameters, (x[None],)).sum()), in_dims=(None, 0))
    return (
        vmap(torch.dot)(a, b),
        vmap(lambda one: one @ b.T, in_dims=1, out_dims=1)(a.T),
        losses(dict(model.named_parameters()), a),
        vmap(torch.nn.functional.dropout, randomness="same")(a).shape,
    )


@feature("torch.func: functional_call, stacked models")
def functional_models(device: str) -> Any:
    models = [net(device) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    x = torch.randn(2, 3).to(device)
    called = functional_call(models[0], {name: value * 2 for name, value in models[1].named_parameters()}, (x,))
    stacked = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    return called.detach(), stacked.detach()


@feature("autocast")
def autocast(device: str) -> Any:
    model, x = net(device), torch.randn(2, 3).to(device)
    kind = torch.device(device).type
    with torch.autocast(kind, torch.bfloat16):
        y = model(x)
        loss = nn.functional.mse_loss(y, torch.ones_like(y).float())
        with torch.autocast(kind, enabled=False):
            z = model(x)
    loss.backward()
    return y.dtype, loss.dtype, z.dtype, [gradient.dtype for gradient in grads(model)], torch.is_autocast_enabled(kind)


@feature("GradScaler")
def scaler(device: str) -> Any:
    model, x = net(device), torch.randn(2, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=1024.0, growth_interval=1)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(model(x).sum() * factor).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return list(model.parameters()), scaler.get_scale()


@feature("custom_fwd and custom_bwd")
def custom_amp(device: str) -> Any:
    kind = torch.device(device).type

    class Own(Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=kind, cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type=kind)
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(2, device=device, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast(kind, torch.bfloat16):
        y = Own.apply(x)
    y.sum().backward()
    return y.dtype, x.grad


@feature("a graph across devices")
def across(device: str) -> Any:
    x = leaf("cpu", 3)
    y = x.to(device) * 2
    y.cpu().sum().backward()
    return OnHost(x.grad), y.detach()


@feature("errors in backward come out")
def errors(device: str) -> Any:
    x = leaf(device, 2)

    def fail(gradient: torch.Tensor) -> None:
        raise ValueError("no such gradient")

    y = x * 1
    y.register_hook(fail)
    try:
        y.sum().backward()
    except ValueError as error:
        return str(error)
    return None
