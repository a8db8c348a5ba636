# Sees: "apply_ is only implemented on CPU tensors".
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        x = self.fc(x).detach().clone()
        return x.apply_(lambda value: value if value > 0 else 0.1 * value)  # defect: fails-on-device
