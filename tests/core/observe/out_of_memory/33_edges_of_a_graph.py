"""A whole graph at once: each layer makes a message for every edge, of which there are many more than nodes."""

import torch
from torch import nn

nodes, edges = 10_000, 333_333
features = torch.randn(nodes, 64).cuda()
source, target = torch.randint(nodes, (2, edges)).cuda()
weight = torch.rand(edges, 1).cuda()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, inputs):
        values = self.linear(inputs)
        messages = (weight * values[source]).tanh()
        return torch.zeros_like(values).index_add(0, target, messages)


nn.Sequential(*[Layer() for _ in range(8)]).cuda()(features).square().mean().backward()
