import torch
import torch.nn.functional as F
from torch import nn


class ContrastiveHead(nn.Module):
    def __init__(self, dim=20, projection=8):
        super().__init__()
        self.project = nn.Linear(dim, projection)
        self.temperatures = [nn.Parameter(torch.tensor([0.07]))]
        self.optimizer = torch.optim.SGD([*self.project.parameters(), *self.temperatures], lr=0.1)

    def loss(self, x):
        z = F.normalize(self.project(x), dim=1)
        if self.temperatures[0].device != z.device:
            self.temperatures[0] = nn.Parameter(self.temperatures[0].detach().to(z.device))
        logits = z @ z.T / self.temperatures[0]
        return F.cross_entropy(logits, torch.arange(len(z), device=z.device))

    def forward(self, x):
        with torch.enable_grad():
            loss = self.loss(x)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.detach()
