"""A model is built on the card, and its first layers have filled it: they are no second model of each other."""

from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(1024, 8192, device="cuda"), nn.Linear(8192, 1024, device="cuda")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(16)])


Net()
