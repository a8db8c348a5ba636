"""What recurrent layers cost on virtual GPUs: the host a call, the card their kernels, as with cuDNN."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from devexplorer.core.virtual.device.cost import HostCall, cost_parameters
from devexplorer.core.virtual.device.machine import VirtualMachine

STEPS = 24
A_CALL_S = cost_parameters()[HostCall.FORWARD]
FEW_CALLS = 20
"""Far fewer than one for each time step and layer."""


class Spent:
    """Seconds of the first card, and of launching, since this was asked last."""

    def __init__(self, virtual: VirtualMachine) -> None:
        self._clock = virtual.gpus[0].clock
        self._before = self._read()

    def _read(self) -> tuple[float, float]:
        return self._clock.busy_seconds, self._clock.thread_host_seconds

    def __call__(self) -> tuple[float, float]:
        (device, host), before = self._read(), self._before
        self._before = device, host
        return device - before[0], host - before[1]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_is_one_call_of_the_host(virtual: VirtualMachine, kind: type[nn.RNNBase]) -> None:
    layer = kind(64, 64, num_layers=2, bidirectional=True).to("vgpu:0")
    values = torch.randn(STEPS, 8, 64, device="vgpu:0", requires_grad=True)
    head = nn.Linear(128, 4).to("vgpu:0")
    layer(values)
    spent = Spent(virtual)
    result = layer(values)[0]
    device, host = spent()
    assert host < FEW_CALLS * A_CALL_S
    assert device > 2 * STEPS * 1e-6, "a kernel for each time step"
    result.backward(torch.ones_like(result))
    backward_device, backward_host = spent()
    assert backward_host < FEW_CALLS * A_CALL_S
    assert 1.2 < backward_device / device < 3.0, "about twice the forward"
    with torch.inference_mode():
        layer(values)
    assert spent()[1] < FEW_CALLS * A_CALL_S
    for _ in range(STEPS):
        head(result.detach()).sum().backward()
    assert spent()[1] > 3 * STEPS * A_CALL_S, "what comes after it is called as usual"


def test_packed_sequences_and_cells(virtual: VirtualMachine) -> None:
    layer, cell = nn.LSTM(8, 8).to("vgpu:0"), nn.LSTMCell(8, 8).to("vgpu:0")
    lengths = torch.arange(STEPS, 0, -1)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(STEPS, STEPS, 8, device="vgpu:0"), lengths)
    spent = Spent(virtual)
    result, _ = layer(packed)
    assert spent()[1] < FEW_CALLS * A_CALL_S
    result.data.sum().backward()
    assert spent()[1] < FEW_CALLS * A_CALL_S
    state = None
    for _ in range(STEPS):
        state = cell(torch.ones(4, 8, device="vgpu:0"), state)
    assert spent()[1] > STEPS * A_CALL_S, "cuDNN has no cells"
