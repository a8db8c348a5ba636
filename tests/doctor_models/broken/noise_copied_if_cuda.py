# Sees: nothing, but noise that is drawn on the CPU and copied in every call.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 6)

    def forward(self, x):
        y = self.fc(x)
        noise = torch.rand(y.shape)
        if torch.cuda.is_available():
            noise = noise.cuda()  # defect: device-hop
        return y - torch.log(-torch.log(noise))
