import torch
from torch import nn
from torch.utils.data import TensorDataset


class NearestPrototype(nn.Module):
    def __init__(self, dim=10, ways=4, shots=5):
        super().__init__()
        self.embed = nn.Linear(dim, 8)
        images = torch.randn(ways * shots, dim)
        labels = torch.arange(ways).repeat_interleave(shots)
        self.support = TensorDataset(images, labels)
        self.ways = ways

    def prototypes(self):
        images, labels = self.support.tensors
        embedded = self.embed(images)
        return torch.stack([embedded[labels == way].mean(dim=0) for way in range(self.ways)])

    def forward(self, query):
        return -torch.cdist(self.embed(query), self.prototypes())
