import torch
from torch import nn


class MultiTaskNet(nn.Module):
    """Three tasks on one trunk; rare tasks get larger gradients."""

    TASK_COUNTS = (9000, 1200, 300)

    def __init__(self, dim=14, hidden=24):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU())
        self.heads = nn.Linear(hidden, 3)
        counts = torch.tensor(self.TASK_COUNTS, dtype=torch.float)
        self.task_scale = counts.max() / counts

    def _rescale(self, grad):
        return grad * self.task_scale

    def forward(self, x):
        logits = self.heads(self.trunk(x))
        if logits.requires_grad:
            logits.register_hook(self._rescale)
        return logits
