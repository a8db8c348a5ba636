import torch
import torch.nn.functional as F
from schedule import NoiseSchedule
from torch import nn


class TinyUNet(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.time = nn.Linear(1, channels)
        self.down = nn.Conv2d(3, channels, 3, padding=1)
        self.up = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(t.float().unsqueeze(-1))[:, :, None, None]
        return self.up(F.silu(self.down(x) + emb))


class DDPM(nn.Module):
    def __init__(self):
        super().__init__()
        self.schedule = NoiseSchedule()
        self.unet = TinyUNet()

    def forward(self, x):
        t = torch.randint(0, self.schedule.steps, (x.size(0),), device=x.device)
        noise = torch.randn_like(x)
        return F.mse_loss(self.unet(self.schedule.q_sample(x, t, noise), t), noise)
