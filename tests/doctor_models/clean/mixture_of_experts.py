# All experts run, the gate weighs them: no choice that the host would have to know.
# input: 6x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(12, 3)
        self.experts = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        kept = scores.topk(2, dim=-1)
        weights = torch.zeros_like(scores).scatter(1, kept.indices, kept.values)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return torch.einsum("be,bew->bw", weights, outputs)
