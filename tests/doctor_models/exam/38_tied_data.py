from torch import nn


class TiedLM(nn.Module):
    def __init__(self, vocabulary=500, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.decode = nn.Linear(dim, vocabulary, bias=False)
        self.decode.weight.data = self.embed.weight.data

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.decode(hidden)
