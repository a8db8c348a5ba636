"""A script for `devexplorer run --virtual`: for each of its models and optimizers a line with what the third step was
predicted to take, what was counted, and what else was seen of the step."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from devexplorer.core.observe import observer
from devexplorer.core.observe.step_trace import observed_step
from devexplorer.core.planner.observed import ObservedStep


class Words(nn.Module):
    """Its scores are as large as everything else together."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, 64)
        self.block = nn.TransformerEncoderLayer(64, 2, 128, batch_first=True)
        self.head = nn.Linear(64, 2000)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.block(self.embedding(numbers)))
        return result


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16))


def planes() -> nn.Module:
    first = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 16))


def step_of(make: Callable[[], nn.Module], inputs: torch.Tensor, optimizer: Any, options: dict[str, Any]) -> None:
    """Three steps; the last one is seen."""
    observation = observer._current[0]
    model = make().cuda()
    steps = optimizer(model.parameters(), **options)
    loss = nn.CrossEntropyLoss()
    found: list[ObservedStep] = []
    observation.batch = 0
    observation.want_batch(True)
    inputs = inputs.cuda()
    for number in range(3):
        steps.zero_grad()
        if number == 2:
            torch.cuda.reset_peak_memory_stats()
            observation.asked.append(observer.Awaited("backward", lambda: found.append(observed_step(observation))))
        output = model(inputs).flatten(0, -2)
        loss(output, torch.zeros(len(output), dtype=torch.long, device="cuda")).backward()
        steps.step()
    (step,), peak = found, torch.cuda.max_memory_allocated()
    (device,) = step.devices
    report = step.with_measured({device.device: peak}).report()
    print(
        json.dumps(
            {
                "predicted": device.predicted_bytes,
                "counted": peak,
                "batch": step.batch,
                "optimizer": step.optimizer,
                "parameters": step.parameters,
                "device": [device.device, device.name, device.simulated],
                "fits": {fit.gpu: [fit.fits, fit.largest_batch] for fit in report.fits},
                "problems": observation.problems,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    step_of(dense, torch.randn(64, 512), SGD, {"lr": 0.1})
    step_of(dense, torch.randn(64, 512), AdamW, {})
    step_of(dense, torch.randn(64, 512), AdamW, {"foreach": False})
    step_of(dense, torch.randn(4096, 512), SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1})
    step_of(planes, torch.randn(64, 3, 16, 16), SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1})
    step_of(Words, torch.randint(0, 2000, (16, 32)), Adam, {"weight_decay": 0.1})
