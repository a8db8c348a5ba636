"""A script for `devexplorer run --virtual`: it lets the doctor look at its model after a few steps, and prints the
findings, as a window would be told."""

import json
from typing import Any

import torch
from torch import nn

from devexplorer.core.doctor.in_use import examined_in_use
from devexplorer.core.observe import observer
from devexplorer.core.observe.whereabouts import crossing_findings, own_files
from devexplorer.core.records import DeviceInfo


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.blocks = [nn.Linear(8, 8).cuda()]  # registered nowhere
        self.mask = torch.ones(8)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x * self.mask.to(x.device))  # a copy at every step
        return self.stem(x)


model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())
total: Any = 0.0
before = model.stem.weight._version
for _number in range(8):
    loss = model(torch.ones(4, 8).cuda()).sum()
    loss.backward()
    optimizer.step()
    total += loss
    if loss.item() > 1e9:  # read back at every step
        break

observation = observer._current[0]
observation.fold.fold()
versions = [parameter._version for parameter in model.parameters()]
allocated = torch.cuda.memory_allocated()
found = examined_in_use(
    "net",
    model,
    DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", simulated=True),
    optimizers=observation.optimizers(),
    files=own_files(observation),
    seen=crossing_findings(observation),
)
untouched = versions == [p._version for p in model.parameters()] and allocated == torch.cuda.memory_allocated()
rows = [(item.severity, item.rule, item.path, item.line) for item in (*found.problems, *found.notes)]
print(json.dumps({"rows": rows, "unchecked": [item.what for item in found.unchecked], "untouched": untouched}))
