from torch import nn
from torch.nn.utils import parametrize


class Pruned(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def forward(self, weight):
        return weight * self.mask


def magnitude_mask(weight, sparsity):
    keep = int(weight.numel() * (1 - sparsity))
    threshold = weight.detach().abs().flatten().topk(keep).values[-1]
    return (weight.detach().abs() >= threshold).float()


class PrunedNet(nn.Module):
    def __init__(self, sparsity=0.5):
        super().__init__()
        self.fc1 = nn.Linear(20, 30)
        self.fc2 = nn.Linear(30, 5)
        for layer in (self.fc1, self.fc2):
            mask = magnitude_mask(layer.weight, sparsity)
            parametrize.register_parametrization(layer, "weight", Pruned(mask))

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())
