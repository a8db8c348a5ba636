# Sees: fine-tuning changes nothing: forward itself freezes the backbone, in training too.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        self.backbone.requires_grad_(False)  # defect: cut-from-autograd
        return self.head(self.backbone(x))
