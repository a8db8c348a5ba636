# Sees: the model's own .to() moves the encoder and forgets the decoder.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 6)
        self.decoder = nn.Linear(6, 12)

    def to(self, *args, **kwargs):
        self.encoder.to(*args, **kwargs)
        return self

    def forward(self, x):
        code = self.encoder(x).relu()
        return self.decoder(code)  # defect: mixed-devices
