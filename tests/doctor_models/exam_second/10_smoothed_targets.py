import torch
import torch.nn.functional as F
from torch import nn


class LabelSmoothing(nn.Module):
    """The annotated transformer's, with the padding index left out."""

    def __init__(self, size, smoothing=0.1):
        super().__init__()
        self.size = size
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing

    def forward(self, logits, target):
        logp = F.log_softmax(logits, dim=-1)
        with torch.no_grad():
            smooth = torch.full((logits.size(0), self.size), self.smoothing / (self.size - 1))
            smooth.scatter_(1, target.unsqueeze(1), self.confidence)
        return F.kl_div(logp, smooth, reduction="batchmean")


class Classifier(nn.Module):
    def __init__(self, features=18, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 32), nn.ReLU())
        self.classify = nn.Linear(32, classes)
        self.criterion = LabelSmoothing(classes)

    def forward(self, x):
        logits = self.classify(self.body(x))
        pseudo = logits.detach().argmax(dim=-1)
        return logits, self.criterion(logits, pseudo)
