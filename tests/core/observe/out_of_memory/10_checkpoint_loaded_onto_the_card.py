"""Goes on from a checkpoint, which is loaded onto the card where model and optimizer are already."""

import os
import tempfile

import torch
from torch import nn

model = nn.Sequential(nn.Embedding(66_000, 512), nn.Linear(512, 16)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model(torch.tensor([1, 2, 3], device="cuda")).square().mean().backward()
optimizer.step()

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "last.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    checkpoint = torch.load(path, map_location="cuda")
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
