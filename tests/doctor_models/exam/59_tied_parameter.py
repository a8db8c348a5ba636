from torch import nn


class TiedParameterLM(nn.Module):
    def __init__(self, vocabulary=500, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.mix = nn.Linear(dim, dim)
        self.decode = nn.Linear(dim, vocabulary, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, tokens):
        return self.decode(self.mix(self.embed(tokens)).tanh())
