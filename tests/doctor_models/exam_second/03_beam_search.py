import torch
from torch import nn


class Captioner(nn.Module):
    def __init__(self, features=24, vocab=20, hidden=32, beams=3, steps=5):
        super().__init__()
        self.beams = beams
        self.steps = steps
        self.vocab = vocab
        self.start = nn.Linear(features, hidden)
        self.embed = nn.Embedding(vocab, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, features):
        batch = features.size(0)
        hidden = torch.tanh(self.start(features)).repeat_interleave(self.beams, dim=0)
        tokens = torch.zeros(batch * self.beams, dtype=torch.long, device=features.device)
        scores = features.new_full((batch, self.beams), -1e9)
        scores[:, 0] = 0.0
        base = torch.arange(batch).unsqueeze(1) * self.beams
        sequences = []
        for _ in range(self.steps):
            hidden = self.cell(self.embed(tokens), hidden)
            logp = self.head(hidden).log_softmax(dim=-1).view(batch, self.beams, self.vocab)
            total = (scores.unsqueeze(-1) + logp).view(batch, -1)
            scores, flat = total.topk(self.beams, dim=-1)
            parent = torch.div(flat, self.vocab, rounding_mode="floor")
            tokens = (flat % self.vocab).view(-1)
            hidden = hidden.index_select(0, (base + parent).view(-1))
            sequences.append(tokens.view(batch, self.beams))
        return torch.stack(sequences, dim=-1), scores
