"""Training is tried with several rates; the exceptions are kept, and with their tracebacks what each attempt had."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1024, 1024) for _ in range(6)])

    def forward(self, inputs):
        for layer in self.layers:
            inputs = layer(inputs).relu()
        return inputs.mean()


def attempt(model, rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    loss = model(torch.randn(8192, 1024, device="cuda"))
    if rate > 1e-4:
        raise FloatingPointError("the loss is not finite")
    loss.backward()
    optimizer.step()


model = Net().cuda()
failures = []
for rate in (1.0, 0.1, 0.01, 0.001):
    try:
        attempt(model, rate)
    except FloatingPointError as error:
        failures.append((rate, error))
