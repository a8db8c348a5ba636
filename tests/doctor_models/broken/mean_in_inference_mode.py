# Sees: the gate does not learn.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(12, 1)
        self.fc = nn.Linear(12, 12)

    @torch.inference_mode()  # defect: cut-from-autograd
    def opened(self, x):
        return torch.sigmoid(self.gate(x))

    def forward(self, x):
        return self.fc(x) * self.opened(x).clone()
