# A mode of the model's own that counts the calls of torch.
# input: 4x12
from torch import nn
from torch.overrides import TorchFunctionMode


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.n += 1
        return func(*args, **(kwargs or {}))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        with Counting():
            return self.fc(x).relu()
