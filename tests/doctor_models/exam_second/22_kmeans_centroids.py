import torch
from torch import nn


def kmeans(points, k, iterations=5):
    """Plain Lloyd iterations; points beyond a few thousand do not fit on the card."""
    points = points.detach().float().cpu()
    centers = points[:k].clone()
    for _ in range(iterations):
        nearest = torch.cdist(points, centers).argmin(dim=1)
        for j in range(k):
            member = points[nearest == j]
            if len(member):
                centers[j] = member.mean(dim=0)
    return centers


class ClusteredEncoder(nn.Module):
    def __init__(self, dim=10, code=6, clusters=4):
        super().__init__()
        self.clusters = clusters
        self.encode = nn.Sequential(nn.Linear(dim, 16), nn.Tanh(), nn.Linear(16, code))
        self.decode = nn.Linear(code, dim)
        self.centroids = None

    def assign(self, z):
        # Student's t kernel of DEC
        q = 1.0 / (1.0 + torch.cdist(z, self.centroids) ** 2)
        return q / q.sum(dim=1, keepdim=True)

    def forward(self, x):
        z = self.encode(x)
        if self.centroids is None:
            self.centroids = kmeans(z, self.clusters)
        return self.decode(z), self.assign(z)
