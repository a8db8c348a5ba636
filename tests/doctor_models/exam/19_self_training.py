import torch
from torch import nn


class OnlineRegressor(nn.Module):
    """Predicts, then learns from what it saw (test-time training)."""

    def __init__(self, features=5):
        super().__init__()
        self.predict = nn.Linear(features, 1)
        self.optimizer = torch.optim.Adam(self.predict.parameters(), lr=1e-2)
        self.learn(torch.zeros(1, features))

    def learn(self, x):
        with torch.enable_grad():
            loss = (self.predict(x) - x.mean(dim=1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def forward(self, x):
        answer = self.predict(x).detach()
        self.learn(x.detach())
        return answer
