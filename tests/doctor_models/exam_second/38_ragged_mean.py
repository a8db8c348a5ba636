import torch
from torch import nn


class RaggedMean(nn.Module):
    def forward(self, states, lengths):
        pooled = []
        for state, length in zip(states, lengths, strict=True):
            pooled.append(state[: int(length)].mean(dim=0))
        return torch.stack(pooled)


class DocumentEncoder(nn.Module):
    """Token ids padded with zero to the mean of the states of the real tokens."""

    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.pool = RaggedMean()

    def forward(self, tokens):
        lengths = (tokens != 0).sum(dim=1).clamp(min=1)
        states = torch.tanh(self.mix(self.embed(tokens)))
        return self.pool(states, lengths)
