# Sees: accelerate has placed the model, and .to() works against its hooks.
# input: 4x12
# needs: accelerate
from accelerate import dispatch_model
from torch import nn


def make():
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
    return dispatch_model(model, device_map={"": "cpu"}, force_hooks=True)  # defect: offload-hooks
