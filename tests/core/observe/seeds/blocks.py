"""Document 004, 5.1 to 5.5: blocks, parameters, initialisers, tying, lazy layers, own layers, files."""

import os
import tempfile

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(20, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.out(functional.relu(self.hidden(x)))


class OfDict(nn.Module):
    def __init__(self, *args):
        super().__init__()
        for index, module in enumerate(args):
            self._modules[str(index)] = module

    def forward(self, x):
        for block in self._modules.values():
            x = block(x)
        return x


class OfList(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.blocks = list(args)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Side(nn.Module):
    def __init__(self, one, two):
        super().__init__()
        self.one, self.two = one, two

    def forward(self, x):
        return torch.cat((self.one(x), self.two(x)), dim=1)


class Bilinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(outputs, inputs, inputs))

    def forward(self, x):
        return torch.einsum("bi,kij,bj->bk", x, self.weight, x)


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean()


X = torch.rand(2, 20)
print(Block()(X).shape, OfDict(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 10))(X).shape)
print(len(list(OfDict(nn.Linear(2, 2)).parameters())), len(list(OfList(nn.Linear(2, 2)).parameters())))
print(Side(Block(), Block())(X).shape, nn.Sequential(*(nn.Linear(20, 20) for _ in range(3)))(X).shape)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
print(type(net[2].bias))
print(*[(name, param.shape) for name, param in net.named_parameters()])
print(net.state_dict()["2.bias"].shape, net[2].weight.grad is None)
nested = nn.Sequential()
for number in range(2):
    nested.add_module(f"block {number}", nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
print(nested)
nn.init.constant_(net[0].weight, 1)
nn.init.zeros_(net[0].bias)
print(net[0].weight.data[0], net[0].bias.data[0])
shared = nn.Linear(8, 8)
tied = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(8, 1))
tied[2].weight.data[0, 0] = 100
print(tied[2].weight.data[0] == tied[4].weight.data[0])
lazy = nn.Sequential(nn.LazyLinear(256), nn.ReLU(), nn.LazyLinear(10))
print(lazy[0].weight)
lazy(X)
print(lazy[0].weight.shape)
print(Centred()(torch.FloatTensor([1, 2, 3, 4, 5])), Bilinear(2, 1)(torch.ones(1, 2)))
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "mlp.params")
    clone, first = Block(), Block()
    torch.save(first.state_dict(), file)
    clone.load_state_dict(torch.load(file))
    print(torch.equal(first(X), clone.eval()(X)))
