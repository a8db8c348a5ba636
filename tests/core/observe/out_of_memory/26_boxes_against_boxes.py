"""All anchors are compared with all boxes of a crowded picture, in several steps of the same size."""

import torch


def intersections(first, second):
    low = torch.max(first[:, None, :2], second[None, :, :2])
    high = torch.min(first[:, None, 2:], second[None, :, 2:])
    return (high - low).clamp(min=0).prod(-1)


anchors = torch.rand(100_000, 4).cuda()
pictures = torch.rand(1, 3, 512, 512).cuda()
print(intersections(anchors, torch.rand(500, 4).cuda()).amax())
