# Tokens are chosen and appended without asking for their values.
# input: 2x6:int64
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 20)

    def forward(self, ids):
        for _ in range(3):
            hidden, _ = self.rnn(self.embed(ids))
            ids = torch.cat((ids, self.out(hidden[:, -1]).argmax(-1, keepdim=True)), dim=1)
        return ids
