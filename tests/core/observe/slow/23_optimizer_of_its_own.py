"""The optimizer is the script's own, and takes the inverse of a matrix for each weight in each step."""

import torch
from torch import nn

torch.set_num_threads(1)


class Curved(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad.reshape(len(parameter), -1)
                curvature = gradient @ gradient.T + torch.eye(len(gradient))
                parameter -= 0.01 * torch.linalg.inv(curvature).mm(gradient).reshape(parameter.shape)


model = nn.Sequential(nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 8))
optimizer = Curved(model.parameters())
inputs, labels = torch.randn(32, 64), torch.randint(8, (32,))
for _ in range(30):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
