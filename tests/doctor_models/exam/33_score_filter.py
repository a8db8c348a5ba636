from torch import nn


class ProposalFilter(nn.Module):
    def __init__(self, channels=4, threshold=0.3):
        super().__init__()
        self.threshold = threshold
        self.objectness = nn.Conv2d(channels, 1, 1)
        self.boxes = nn.Conv2d(channels, 4, 1)

    def forward(self, maps):
        scores = self.objectness(maps).sigmoid().flatten()
        boxes = self.boxes(maps).flatten(2).transpose(1, 2).reshape(-1, 4)
        keep = scores > self.threshold
        return boxes[keep]
