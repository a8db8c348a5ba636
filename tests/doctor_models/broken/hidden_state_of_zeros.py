# Sees: "Input and hidden tensors are not at the same device" in the GRU.
# input: 2x7x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(12, 8, batch_first=True)

    def forward(self, x):
        hidden = torch.zeros(1, x.shape[0], 8)  # defect: default-device
        output, hidden = self.rnn(x, hidden)
        return output
