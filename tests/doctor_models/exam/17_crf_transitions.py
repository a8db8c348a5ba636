import torch
from torch import nn


class CRFTagger(nn.Module):
    def __init__(self, dim=16, tags=7):
        super().__init__()
        self.emit = nn.Linear(dim, tags)
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.01).unsqueeze(0)
        self.start = nn.Parameter(torch.randn(tags) * 0.01)

    def partition(self, emissions):
        alpha = self.start + emissions[:, 0]
        for step in range(1, emissions.size(1)):
            scores = alpha.unsqueeze(2) + self.transitions
            alpha = torch.logsumexp(scores, dim=1) + emissions[:, step]
        return torch.logsumexp(alpha, dim=1)

    def forward(self, hidden):
        return self.partition(self.emit(hidden))
