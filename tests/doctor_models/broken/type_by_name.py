# Sees: an old check of the tensor's type, which says torch.FloatTensor on the CPU only.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        if x.type() != "torch.FloatTensor":
            raise TypeError(f"wants float32, got {x.type()}")  # defect: fails-on-device
        return self.fc(x)
