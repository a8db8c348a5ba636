import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class SparseMoE(nn.Module):
    def __init__(self, dim=16, hidden=32, num_experts=4, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList([Expert(dim, hidden) for _ in range(num_experts)])

    def forward(self, x):
        batch, length, dim = x.shape
        flat = x.reshape(-1, dim)
        scores = self.gate(flat).softmax(dim=-1)
        weights, chosen = scores.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        output = torch.zeros(flat.shape, dtype=x.dtype)
        for k in range(self.top_k):
            for index, expert in enumerate(self.experts):
                routed = (chosen[:, k] == index).unsqueeze(-1).to(x.dtype)
                output += expert(flat) * weights[:, k : k + 1] * routed
        return output.view(batch, length, dim)
