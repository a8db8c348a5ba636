import torch
from torch import nn

RNG = torch.Generator()
RNG.manual_seed(1234)


def mixup(x, alpha=0.2):
    """Mixes each image with another one of its batch, reproducibly."""
    share = torch.distributions.Beta(alpha, alpha).sample().item()
    order = torch.randperm(x.size(0), generator=RNG, device=x.device)
    return share * x + (1 - share) * x[order], order, share


class MixupNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        if self.training:
            x, _, _ = mixup(x)
        return self.fc(self.features(x))
