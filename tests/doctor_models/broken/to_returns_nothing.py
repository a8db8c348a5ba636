# Sees: after `model = model.to(device)` the model is None.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def to(self, *args, **kwargs):  # defect: fails-on-device
        super().to(*args, **kwargs)

    def forward(self, x):
        return self.fc(x)
