import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class AttentivePooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, states, lengths):
        positions = torch.arange(states.size(1), device=states.device)
        mask = positions.unsqueeze(0) < lengths.unsqueeze(1)
        energy = self.score(states).squeeze(-1).masked_fill(~mask, float("-inf"))
        return (energy.softmax(dim=1).unsqueeze(-1) * states).sum(dim=1)


class SentenceEncoder(nn.Module):
    def __init__(self, dim=12, hidden=16):
        super().__init__()
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.pool = AttentivePooling(2 * hidden)

    def forward(self, x):
        lengths = [max(1, x.size(1) - i) for i in range(x.size(0))]
        packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True)
        states, sizes = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.pool(states, sizes)
