# A discriminator; the vectors of the power iteration are buffers.
# input: 2x3x8x8
# train
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


def make():
    return nn.Sequential(
        spectral_norm(nn.Conv2d(3, 8, 3)), nn.LeakyReLU(0.2), nn.Flatten(), spectral_norm(nn.Linear(8 * 36, 1))
    )
