import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class FullLengthEncoder(nn.Module):
    def __init__(self, vocabulary=2000, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def forward(self, tokens):
        lengths = torch.full((tokens.size(0),), tokens.size(1), dtype=torch.int64)
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True)
        _, last = self.gru(packed)
        return last[-1]
