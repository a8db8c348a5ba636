import torch
from torch import nn


class LogPower(nn.Module):
    def __init__(self, n_fft=256):
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        self.mel = nn.Linear(n_fft // 2 + 1, 40)

    def forward(self, wave):
        spectrum = torch.stft(wave, self.n_fft, window=self.window, return_complex=True)
        return self.mel(spectrum.abs().square().add(1e-6).log().transpose(1, 2))
