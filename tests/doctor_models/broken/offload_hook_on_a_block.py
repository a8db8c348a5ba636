# Sees: one block has accelerate's hook, which brings its inputs back to where it was told at that time.
# input: 4x12
# needs: accelerate
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.second = nn.Linear(12, 4)
        add_hook_to_module(self.second, AlignDevicesHook(io_same_device=True))  # defect: offload-hooks

    def forward(self, x):
        return self.second(self.first(x).relu())
