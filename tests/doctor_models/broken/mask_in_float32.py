# Sees: a model in half precision whose attention scores are in single.
# input: 2x6x16
# dtype: float16
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qk = nn.Linear(16, 32)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, dim=-1)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(1)
        scores = q @ k.transpose(1, 2) + mask  # defect: dtype-promotion
        return scores.softmax(-1).to(x.dtype) @ x
