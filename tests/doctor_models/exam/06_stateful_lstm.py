import torch
from torch import nn


class StreamingTagger(nn.Module):
    """Tags a stream of text chunk by chunk; the state is carried from chunk to chunk."""

    def __init__(self, vocabulary=5000, hidden=24, tags=9):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(vocabulary, 16)
        self.lstm = nn.LSTM(16, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, tags)
        self.state = None

    def reset(self, batch):
        shape = (self.lstm.num_layers, batch, self.hidden)
        self.state = (torch.zeros(shape), torch.zeros(shape))

    def forward(self, tokens):
        if self.state is None or self.state[0].size(1) != tokens.size(0):
            self.reset(tokens.size(0))
        out, state = self.lstm(self.embed(tokens), self.state)
        self.state = tuple(s.detach() for s in state)
        return self.head(out)
