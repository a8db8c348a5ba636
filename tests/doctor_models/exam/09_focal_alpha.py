import torch
import torch.nn.functional as F
from torch import nn


class FocalLoss(nn.Module):
    alpha = torch.tensor([0.1, 0.4, 0.3, 0.2])
    gamma = 2.0

    def forward(self, logits, target):
        log_p = F.log_softmax(logits, dim=1)
        ce = F.nll_loss(log_p, target, weight=self.alpha, reduction="none")
        pt = log_p.gather(1, target.unsqueeze(1)).squeeze(1).exp()
        return ((1 - pt) ** self.gamma * ce).mean()


class SegmentationLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.Conv2d(4, 4, kernel_size=1)
        self.criterion = FocalLoss()

    def forward(self, features):
        logits = self.decoder(features)
        pseudo_labels = features.argmax(dim=1)
        return self.criterion(logits, pseudo_labels)
