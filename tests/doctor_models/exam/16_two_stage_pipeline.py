from torch import nn


class TwoStage(nn.Module):
    def __init__(self, dim=12, hidden=48, classes=5):
        super().__init__()
        self.stage1 = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.stage2 = nn.Sequential(nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x):
        h = self.stage1(x)
        h = h.to("cuda:1")
        return self.stage2(h)
