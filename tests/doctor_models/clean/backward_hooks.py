# Hooks on gradients that clip them where they are.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.out = nn.Linear(12, 2)
        self.out.register_full_backward_hook(lambda module, inner, outer: None)
        self.out.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))

    def forward(self, x):
        y = self.fc(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * 0.5)
        return self.out(y)
