# Sees: one head per task; on the GPU each of them is still on the CPU.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 16), nn.ReLU())
        self.heads = {"age": nn.Linear(16, 1), "kind": nn.Linear(16, 5)}  # defect: unregistered-module

    def forward(self, x):
        shared = self.trunk(x)
        return {task: head(shared) for task, head in self.heads.items()}
