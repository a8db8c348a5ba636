import torch
from torch import nn


class BiasedScores(nn.Module):
    def __init__(self, slope=0.25, warm_lengths=(4, 6)):
        super().__init__()
        self.slope = slope
        self.gain = nn.Parameter(torch.ones(1))
        self._bias = {}
        for length in warm_lengths:
            self.bias(length, torch.device("cpu"))

    def bias(self, length, device):
        key = (length, device)
        if key not in self._bias:
            steps = torch.arange(length, device=device)
            self._bias[key] = -self.slope * (steps[:, None] - steps[None, :]).abs()
        return self._bias[key]

    def forward(self, scores):
        return (self.gain * scores + self.bias(scores.size(-1), scores.device)).softmax(dim=-1)
