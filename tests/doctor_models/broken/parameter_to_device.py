# Sees: "can't optimize a non-leaf Tensor" when the weight is passed to the optimizer.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.fc = nn.Linear(12, 12)
        self.gain = nn.Parameter(torch.ones(12)).to(device)  # defect: parameter-not-leaf

    def forward(self, x):
        return self.fc(x) * self.gain
