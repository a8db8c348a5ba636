"""A checkpoint and a line in the log after every step."""

import json
import tempfile
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(8, 256)
with tempfile.TemporaryDirectory() as folder, Path(folder, "log.jsonl").open("w") as log:
    for step in range(40):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        log.write(json.dumps({"step": step}) + "\n")
        log.flush()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, Path(folder, "last.pt"))
