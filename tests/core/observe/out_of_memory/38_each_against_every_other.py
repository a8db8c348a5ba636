"""A contrastive loss compares each of 10,000 rows with every other."""

import torch
from torch import nn
from torch.nn import functional

model = nn.Linear(16, 32).cuda()
rows = functional.normalize(model(torch.randn(10_000, 16, device="cuda")), dim=1)
similarity = rows @ rows.T / 0.1
functional.cross_entropy(similarity, torch.arange(10_000, device="cuda")).backward()
