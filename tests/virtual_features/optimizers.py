"""Every optimizer of torch.optim, plain, foreach and fused, and the learning-rate schedulers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from virtual_features import Topic

feature = Topic("Optimizers")
SKIPPED = {"Optimizer", "SparseAdam"}
"""The base class; the one for gradients that virtual GPUs do not have (`Embedding with sparse gradients`)."""
KINDS = sorted(
    name
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)
)


def steps(kind: Any, device: str, **options: Any) -> Any:
    """Parameters and state after three steps."""
    module = nn.Linear(3, 3, bias=not kind.__name__.startswith("Muon")).to(device)
    optimizer = kind(module.parameters(), **options)
    x = torch.randn(4, 3).to(device)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure)) for _ in range(3)]
    state = [
        value
        for held in optimizer.state.values()
        for value in held.values()
        if isinstance(value, torch.Tensor) and value.dim()
    ]
    return losses, list(module.parameters()), state


def add(name: str, kind: Any, **options: Any) -> None:
    @feature(name)
    def run(device: str) -> Any:
        return steps(kind, device, **options)


for kind_name in KINDS:
    if kind_name not in SKIPPED:
        optimizer_kind = getattr(torch.optim, kind_name)
        add(kind_name, optimizer_kind, **({"lr": 0.1} if kind_name != "LBFGS" else {}))
        for option in ("foreach", "fused"):
            if option in inspect.signature(optimizer_kind).parameters:
                add(f"{kind_name}, {option}", optimizer_kind, **{option: True}, lr=0.1)

for label, chosen, more in (
    ("SGD with momentum", torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "lr": 0.1}),
    ("Adam with amsgrad", torch.optim.Adam, {"amsgrad": True}),
    ("Adam with a tensor as rate", torch.optim.Adam, {"lr": torch.tensor(0.1)}),
):
    add(label, chosen, **more)


@feature("optimizer state saved and loaded")
def states(device: str) -> Any:
    results = []
    module = nn.Linear(2, 2).to(device)
    first, second = (torch.optim.Adam(module.parameters(), 0.1) for _ in range(2))
    for _ in range(2):
        module(torch.ones(1, 2, device=device)).sum().backward()
        first.step()
    second.load_state_dict(first.state_dict())
    second.step()
    for held in second.state.values():
        results.append([held["exp_avg"], held["exp_avg_sq"], held["step"].item()])
    return results, list(module.parameters())


@feature("parameter groups")
def groups(device: str) -> Any:
    module = nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD([{"params": [module.weight]}, {"params": [module.bias], "lr": 1.0}], lr=0.1)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1, device=device))]})
    module(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return list(module.parameters()), len(optimizer.param_groups), module.weight.grad is None


@feature("an optimizer in backward")
def in_backward(device: str) -> Any:
    module = nn.Linear(2, 2).to(device)
    made = {parameter: torch.optim.SGD([parameter], 0.1) for parameter in module.parameters()}

    def step(parameter: torch.Tensor) -> None:
        made[parameter].step()
        made[parameter].zero_grad()

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    module(torch.ones(1, 2, device=device)).sum().backward()
    return list(module.parameters())


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    "MultiStepLR": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [1, 3]),
    "ExponentialLR": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 4),
    "CosineAnnealingWarmRestarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=10),
    "CyclicLR": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.1, 0.5),
    "LinearLR": lambda optimizer: lr_scheduler.LinearLR(optimizer),
    "PolynomialLR": lambda optimizer: lr_scheduler.PolynomialLR(optimizer),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.StepLR(optimizer, 1)], [2]
    ),
    "ReduceLROnPlateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=0),
}


@feature("learning-rate schedulers")
def schedulers(device: str) -> Any:
    rates = {}
    for name, make in SCHEDULERS.items():
        parameter = nn.Parameter(torch.ones(2, device=device))
        optimizer = torch.optim.SGD([parameter], 0.1, momentum=0.9)
        scheduler = make(optimizer)
        rates[name] = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = parameter.square().sum()
            loss.backward()
            optimizer.step()
            scheduler.step(loss) if name == "ReduceLROnPlateau" else scheduler.step()
            rates[name].append(optimizer.param_groups[0]["lr"])
        rates[name].append(parameter)
    return rates
