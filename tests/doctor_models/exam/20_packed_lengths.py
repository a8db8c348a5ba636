from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class PackedEncoder(nn.Module):
    def __init__(self, vocabulary=2000, dim=16, padding=-1):
        super().__init__()
        self.padding = padding
        self.embed = nn.Embedding(vocabulary, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True, bidirectional=True)

    def forward(self, tokens):
        lengths = (tokens != self.padding).sum(dim=1)
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)
        return last.transpose(0, 1).flatten(1)
