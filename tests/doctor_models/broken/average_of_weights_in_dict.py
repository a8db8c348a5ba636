# Sees: a moving average of the weights lies in a plain dict and stays on the CPU.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        state = self.fc.state_dict()
        self.average = {name: value.clone() for name, value in state.items()}  # defect: unregistered-tensor

    def forward(self, x):
        with torch.no_grad():
            for name, value in self.fc.state_dict().items():
                self.average[name].lerp_(value, 0.1)
        return self.fc(x)
