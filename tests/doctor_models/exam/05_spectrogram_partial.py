from functools import partial

import torch
from torch import nn


class MelClassifier(nn.Module):
    def __init__(self, n_fft=256, hop=128, classes=10):
        super().__init__()
        self.spectrogram = partial(
            torch.stft,
            n_fft=n_fft,
            hop_length=hop,
            window=torch.hann_window(n_fft),
            return_complex=True,
        )
        self.mel = nn.Linear(n_fft // 2 + 1, 40, bias=False)
        self.rnn = nn.GRU(40, 32, batch_first=True)
        self.head = nn.Linear(32, classes)

    def forward(self, wave):
        power = self.spectrogram(wave).abs().square()
        mel = self.mel(power.transpose(1, 2)).abs().add(1e-6).log()
        frames, _ = self.rnn(mel)
        return self.head(frames.mean(dim=1))
