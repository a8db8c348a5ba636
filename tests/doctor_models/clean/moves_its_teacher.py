# A teacher that is hidden on purpose, and moved by the model itself.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.teacher = [nn.Linear(12, 12).requires_grad_(False)]

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.teacher[0]._apply(fn)
        return self

    def forward(self, x):
        return self.fc(x) + self.teacher[0](x)
