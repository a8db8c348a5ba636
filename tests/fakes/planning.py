"""Shared by tests of the planner: cards, runs on measuring GPUs, and the same step on a virtual GPU with values."""

from __future__ import annotations

import gc

import torch
from torch import nn

from devexplorer.core.devices.profiles import Profile, parse_virtual
from devexplorer.core.models.extras import make_optimizer
from devexplorer.core.models.run import total
from devexplorer.core.models.samples.registry import InputSpec
from devexplorer.core.planner.run import DeviceMap, StepConfig, run_step
from devexplorer.core.planner.subject import Subject, subject_of
from devexplorer.core.planner.trace import Replay, Trace
from devexplorer.core.virtual.backend import install, swapping

T4: Profile = parse_virtual("Tesla T4")[0]
ONE = DeviceMap((T4,))


def subject(model: nn.Module, *shapes: tuple[int, ...]) -> Subject:
    """A model defined by the test."""
    return Subject("the model", model, tuple(InputSpec(shape) for shape in shapes), True)


def traced(model: nn.Module, *shapes: tuple[int, ...], config: StepConfig, batch: int) -> Trace:
    """The trace of its step on one card."""
    return run_step(subject(model, *shapes), config, batch, ONE)[0]


def counted(name: str, config: StepConfig, batch: int, given: str = "") -> int:
    """The peak in the allocator of a virtual GPU for two such steps of this model there, with values, as in a user's
    script."""
    made = subject_of(name, "", given).with_values(RuntimeError("the test wants them"))
    gc.collect()
    machine = install()
    machine.reset()
    machine.add([T4])
    model = made.model.train(config.train)
    with swapping():
        model.to("vgpu:0", config.dtype)
    generator = torch.Generator().manual_seed(0)
    inputs = [spec.tensor(torch.float32, generator).to("vgpu:0") for spec in made.inputs(batch)]
    if not config.train:
        with torch.no_grad():
            model(*inputs)
    else:
        optimizer = make_optimizer(config.optimizer, list(model.parameters()), lr=1e-6, foreach=True)
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            output = model(*inputs)
            loss = total(output)
            assert loss is not None
            loss.backward()
            optimizer.step()
    peak: int = torch.vgpu.max_memory_allocated("vgpu:0")  # type: ignore[attr-defined]
    return peak


def replayed(model: nn.Module, *shapes: tuple[int, ...], config: StepConfig, batch: int) -> Replay:
    """The memory of its step on a card with unlimited memory."""
    return traced(model, *shapes, config=config, batch=batch).without_end
