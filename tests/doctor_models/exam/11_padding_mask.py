import torch
from torch import nn


class SentenceEncoder(nn.Module):
    def __init__(self, vocabulary=1000, dim=32, keep_first=8):
        super().__init__()
        self.keep_first = keep_first
        self.embed = nn.Embedding(vocabulary, dim)
        self.score = nn.Linear(dim, 1)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        mask = torch.zeros(tokens.shape, dtype=torch.bool)
        mask[:, self.keep_first :] = True
        mask.to(hidden.device)
        weights = self.score(hidden).squeeze(-1).masked_fill(mask, float("-inf")).softmax(dim=1)
        return torch.einsum("bt,btd->bd", weights, hidden)
