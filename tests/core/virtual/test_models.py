"""Models on virtual GPUs: forward, backward and optimizer steps equal the CPU's, and moving keeps what a real move
keeps."""

import copy

import pytest
import torch
from torch import nn

from devexplorer.core.virtual.backend import is_virtual, move_uninitialised, swapping

pytestmark = pytest.mark.usefixtures("virtual")


class Sequence(nn.Module):
    """Tokens -> embedding -> a recurrent or attention core -> logits."""

    def __init__(self, core):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.core = core
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        out = self.core(self.embedding(tokens))
        return self.head(out[0] if isinstance(out, tuple) else out)


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(16), nn.Linear(16, 3))


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, groups=2),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def encoder():
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
    )


MODELS = {
    "mlp": (mlp, lambda: torch.randn(5, 6)),
    "convnet": (convnet, lambda: torch.randn(2, 3, 8, 8)),
    "encoder": (lambda: Sequence(encoder()), lambda: torch.randint(0, 11, (2, 5))),
    "lstm": (lambda: Sequence(nn.LSTM(8, 8, num_layers=2, batch_first=True)), lambda: torch.randint(0, 11, (2, 5))),
    "lstm bidirectional": (
        lambda: Sequence(nn.LSTM(8, 4, bidirectional=True, bias=False)),
        lambda: torch.randint(0, 11, (5, 2)),
    ),
    "gru": (lambda: Sequence(nn.GRU(8, 8, batch_first=True)), lambda: torch.randint(0, 11, (2, 5))),
    "rnn": (lambda: Sequence(nn.RNN(8, 8)), lambda: torch.randint(0, 11, (5, 2))),
}


def train(name, device):
    """Two training steps and one evaluation from the same seed: losses, output and final state, all on the CPU."""
    make_model, make_input = MODELS[name]
    torch.manual_seed(0)
    model, x = make_model(), make_input()
    model.to(device)
    x = x.to(device)
    steps = torch.optim.AdamW(
        model.parameters(), 0.01, eps=1e-3
    )  # gradients that are zero but for rounding decide nothing
    losses = []
    torch.manual_seed(1)
    for _ in range(2):
        steps.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        assert all(str(p.grad.device) == device for p in model.parameters())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        out = model(x)
    assert str(out.device) == device
    return torch.tensor(losses), out.cpu(), {key: value.cpu() for key, value in model.state_dict().items()}


@pytest.mark.parametrize("name", MODELS)
def test_training_gives_what_the_cpu_gives_and_leaves_nothing_behind(name, virtual):
    losses, out, state = train(name, "vgpu:1")
    expected_losses, expected_out, expected_state = train(name, "cpu")
    torch.testing.assert_close(losses, expected_losses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out, expected_out, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(state, expected_state, rtol=1e-3, atol=1e-4)
    assert virtual.clock_seconds("vgpu:1") > 0
    assert virtual.gpu("vgpu:1").memory.allocated_bytes == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # torch's own, on the CPU
@pytest.mark.parametrize("nested", [False, True])
def test_a_transformer_in_evaluation_takes_its_fast_path_with_and_without_a_mask(nested):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    x, mask = torch.randn(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    with torch.no_grad():
        plain, masked = model(x), model(x, src_key_padding_mask=mask)
        model.to("vgpu:1")
        torch.testing.assert_close(model(x.to("vgpu:1")).cpu(), plain, rtol=1e-4, atol=1e-5)
        out = model(x.to("vgpu:1"), src_key_padding_mask=mask.to("vgpu:1")).cpu()
    torch.testing.assert_close(out[~mask], masked[~mask], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_the_composed_cells_are_those_of_the_cpu(kind, bias):
    torch.manual_seed(0)
    cell, x, h = kind(3, 4, bias=bias), torch.randn(2, 3), torch.randn(2, 4)

    def gradients(device):
        made = copy.deepcopy(cell).to(device)
        inputs = [t.to(device).detach().requires_grad_() for t in (x, h)]
        state = (inputs[1], inputs[1] * 0.5) if kind is nn.LSTMCell else inputs[1]
        out = made(inputs[0], state)
        total = sum((part * part).sum() for part in (out if isinstance(out, tuple) else (out,)))
        return [g.cpu() for g in torch.autograd.grad(total, [*inputs, *made.parameters()])]

    torch.testing.assert_close(gradients("vgpu:1"), gradients("cpu"))


# --- moving
# ----------------------------------------------------------------------------------------------------


def test_the_swap_flag_is_set_only_inside():
    assert not torch.__future__.get_swap_module_params_on_conversion()
    with swapping():
        assert torch.__future__.get_swap_module_params_on_conversion()
    assert not torch.__future__.get_swap_module_params_on_conversion()


# --- lazy
# ----------------------------------------------------------------------------------------------------


def lazy_model():
    return nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2)
    )


def waiting(model):
    return [
        t for m in model.modules() for t in (*m._parameters.values(), *m._buffers.values()) if nn.parameter.is_lazy(t)
    ]


def move(model, device):
    for tensor in waiting(model):
        move_uninitialised(tensor, device)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and not nn.parameter.is_lazy(buffer):
                module._buffers[name] = buffer.to(device)


def test_lazy_layers_wait_on_the_device_and_come_to_life_there(virtual):
    model = lazy_model()
    originals = {id(tensor) for tensor in waiting(model)}
    move(model, "vgpu:1")
    assert {id(tensor) for tensor in waiting(model)} == originals
    assert {str(tensor.device) for tensor in waiting(model)} == {"vgpu:1"}
    assert all(is_virtual(tensor) for tensor in waiting(model))
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, 0.1)
    out = model(torch.randn(2, 3, 6, 6, device="vgpu:1"))
    assert not waiting(model)
    assert out.shape == (2, 2)
    assert all(now is then for now, then in zip(model.parameters(), parameters, strict=True))
    assert {str(t.device) for t in model.state_dict().values()} == {"vgpu:1"}
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())
    assert type(model[3]) is nn.Linear
    out.sum().backward()
    optimizer.step()
    del model, out, optimizer, parameters
    assert virtual.gpu("vgpu:1").memory.allocated_bytes == 0


def test_a_lazy_parameter_can_change_its_dtype_and_refuses_to_be_used():
    layer = nn.LazyLinear(3)
    move_uninitialised(layer.weight, "vgpu:1", torch.float64)
    move_uninitialised(layer.weight, "vgpu:1", torch.float64)
    assert layer.weight.dtype == torch.float64
    with pytest.raises(ValueError, match="uninitialized parameter"):
        layer.weight + 1
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        move_uninitialised(layer.weight, "vgpu:9")
    assert str(layer.weight.device) == "vgpu:1"


def test_a_lazy_model_can_be_copied_and_listed_before_its_first_forward():
    model = lazy_model()
    move(model, "vgpu:1")
    other = copy.deepcopy(model)
    assert {str(tensor.device) for tensor in waiting(other)} == {"vgpu:1"}
    assert "3.weight" in model.state_dict()
    other(torch.randn(2, 3, 6, 6, device="vgpu:1"))
    assert waiting(model)
