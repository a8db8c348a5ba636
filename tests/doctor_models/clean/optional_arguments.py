# Arguments that may be left out, and results in a dict.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x, mask=None, *, scale: float = 1.0):
        y = self.fc(x) * scale
        if mask is not None:
            y = y * mask
        return {"y": y, "loss": y.square().mean()}
