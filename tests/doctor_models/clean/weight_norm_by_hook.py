# The older weight_norm: a hook recomputes the weight at each forward.
# input: 4x3x10
# train
import warnings

from torch import nn


def make():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(
            nn.utils.weight_norm(nn.Conv1d(3, 6, 3)), nn.ReLU(), nn.utils.weight_norm(nn.Conv1d(6, 2, 3))
        )
