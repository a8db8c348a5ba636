# Sees: "'lengths' argument should be a 1D CPU int64 tensor".
# input: 3x5x12
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(12, 8, batch_first=True)

    def forward(self, x):
        lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
        packed = pack_padded_sequence(x, lengths, batch_first=True)  # defect: fails-on-device
        return self.rnn(packed)[1]
