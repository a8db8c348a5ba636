import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocab=30, dim=24, sampling=0.25):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.cell = nn.LSTMCell(dim, dim)
        self.project = nn.Linear(dim, vocab)
        self.sampling = sampling

    def next_input(self, truth, logits):
        if not self.training:
            return logits.argmax(dim=-1)
        use_model = torch.rand(truth.size(0)) < self.sampling
        return torch.where(use_model, logits.argmax(dim=-1), truth)

    def forward(self, tokens):
        batch, length = tokens.shape
        h = self.embed.weight.new_zeros(batch, self.cell.hidden_size)
        c = torch.zeros_like(h)
        word = tokens[:, 0]
        outputs = []
        for t in range(1, length):
            h, c = self.cell(self.embed(word), (h, c))
            logits = self.project(h)
            outputs.append(logits)
            word = self.next_input(tokens[:, t], logits)
        return torch.stack(outputs, dim=1)
