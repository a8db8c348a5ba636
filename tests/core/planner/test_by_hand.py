"""The planner against sums done by hand: small models of which every block is listed.

A block is what the allocator gives: the request rounded up to 512 B. float32 has 4 B.
"""

import math

import pytest
import torch
from fakes.planning import replayed, traced
from torch import nn
from torch.nn import functional

from devexplorer.core.planner.run import StepConfig

pytestmark = pytest.mark.usefixtures("virtual")


def block(*shape, item=4):
    """Bytes of the block of a tensor of this shape."""
    return -(-math.prod(shape) * item // 512) * 512


def parts(ran):
    """Those that take anything."""
    return {part: size for part, size in ran.parts.items() if size}


def two_layers():
    return nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 30))


def test_two_layers_in_training_with_sgd():
    """Most is there in backward, when the gradient of the activation between the layers was made.

    Forward keeps the result of the ReLU (in the place of its input, which nobody needs) for the backward of both it and
    the second layer; the output lives as long as its name. Backward begins with a gradient of the loss and goes
    through the second layer: the gradient of its input and of its weight and bias; then through the ReLU, which makes a
    new tensor while the one it reads is still there.
    """
    batch = 640
    ran = replayed(two_layers(), (1, 100), config=StepConfig(train=True, optimizer="sgd"), batch=batch)
    parameters = [block(200, 100), block(200), block(30, 200), block(30)]
    given, hidden = block(batch, 100), block(batch, 200)
    second = [block(30, 200), block(30)]
    """Gradients of the second layer's weight and bias."""
    loss_gradient = block(1)
    assert (parameters, given, hidden, second) == ([80384, 1024, 24064, 512], 256000, 512000, [24064, 512])
    through_relu = given + hidden + 2 * hidden + loss_gradient
    assert parts(ran) == {
        "parameters": sum(parameters),
        "gradients": sum(second),
        "activations": through_relu + block(1) + block(batch, 30),
    }
    assert ran.peak == 2000384


def test_two_layers_in_training_with_adam():
    """With a small batch most is there in the optimizer's step: two moments per parameter, and a denominator for all of
    them at a time, beside the output and the loss."""
    ran = replayed(two_layers(), (1, 100), config=StepConfig(train=True, optimizer="adam"), batch=1)
    parameters = sum([block(200, 100), block(200), block(30, 200), block(30)])
    given, denominators = block(1, 100), parameters
    assert parts(ran) == {
        "parameters": parameters,
        "gradients": parameters,
        "optimizer": 2 * parameters,
        "activations": given + denominators + block(1, 30) + block(1),
    }
    assert ran.peak == 5 * 105984 + 3 * 512


def test_buffers_are_no_parameters():
    ran = replayed(nn.Sequential(nn.Linear(100, 300), nn.BatchNorm1d(300)), (2, 100), config=StepConfig(), batch=2)
    assert ran.parts["buffers"] == 2 * block(300) + block(1, item=8)  # running mean and variance; the number of batches
    assert ran.parts["parameters"] == block(300, 100) + 3 * block(300)


def test_what_is_tied_counts_once():
    first, second = nn.Linear(100, 100), nn.Linear(100, 100)
    second.weight = first.weight
    ran = replayed(nn.Sequential(first, second), (1, 100), config=StepConfig(train=True, optimizer="adamw"), batch=1)
    once = block(100, 100) + 2 * block(100)
    assert {kind: ran.parts[kind] for kind in ("parameters", "gradients", "optimizer")} == {
        "parameters": once,
        "gradients": once,
        "optimizer": 2 * once,
    }


def test_autocast_keeps_the_cast_of_a_weight_until_it_ends():
    """As on CUDA: both weights have a cast beside them until the end, one each, although the first layer runs twice."""
    first, second = (nn.Linear(128, 128, bias=False) for _ in range(2))
    ran = replayed(nn.Sequential(first, second, first), (1, 128), config=StepConfig(autocast=torch.bfloat16), batch=4)
    weight, cast = block(128, 128), block(128, 128, item=2)
    given, hidden = block(4, 128), block(4, 128, item=2)
    assert ran.parts["parameters"] == 2 * weight
    assert ran.parts["activations"] == given + 2 * cast + 2 * hidden, (
        "what goes into the last layer, and what comes out of it"
    )


def least(model, *shapes, config, batch):
    """The most that is requested at one time: what the allocator's blocks have left over is left out."""
    return traced(model, *shapes, config=config, batch=batch).least


def test_three_layers_with_gelu():
    """The last layer's backward: inputs of everything before it and its own, the gradients of its input and of its
    weight, the loss's two, its output, and the gradient of that, which is expanded and cuBLAS gets a copy of."""
    model = nn.Sequential(nn.Linear(100, 300), nn.GELU(), nn.Linear(300, 300), nn.GELU(), nn.Linear(300, 50))
    batch = 5000
    parameters = sum(block(*one.shape) for one in model.parameters())
    output, expanded = 2 * [block(batch, 50)]
    assert least(model, (1, 100), config=StepConfig(train=True, optimizer="sgd"), batch=batch) == (
        parameters + block(batch, 100) + 5 * block(batch, 300) + block(50, 300) + output + expanded + 2 * block(1)
    )
    assert least(model, (1, 100), config=StepConfig(), batch=batch) == parameters + block(batch, 100) + 2 * block(
        batch, 300
    ), "freed as it goes"


def test_convolutions_with_batch_normalisation_and_relu_in_place():
    """Input of each convolution but the first, and of each normalisation, the output, and two gradients; four small
    ones beside each: mean and deviation of both normalisations, gradients of the last one's weight and bias, and
    the loss's two."""
    layers = [
        (nn.Conv2d(width, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True)) for width in (3, 32)
    ]
    model = nn.Sequential(*(layer for three in layers for layer in three))
    batch, size = 64, 28
    held = sum(block(*one.shape) for one in model.parameters()) + 4 * block(32) + 2 * block(1, item=8)
    hidden = block(batch, 32, size, size)
    expected = held + block(batch, 3, size, size) + 6 * hidden + 4 * block(32) + 2 * block(32) + 2 * block(1)
    assert least(model, (1, 3, size, size), config=StepConfig(train=True, optimizer="sgd"), batch=batch) == expected


def test_autocast_in_training():
    """When backward begins, after a sum in float32: input and weights, their casts, both results in bfloat16 and the
    last one in float32, the loss's two."""
    model = nn.Sequential(nn.Linear(512, 512, bias=False), nn.Linear(512, 512, bias=False))
    batch = 4096
    weights = 2 * (block(512, 512) + block(512, 512, item=2))
    wide, narrow = block(batch, 512), block(batch, 512, item=2)
    config = StepConfig(train=True, optimizer="sgd", autocast=torch.bfloat16)
    assert least(model, (1, 512), config=config, batch=batch) == weights + 2 * wide + 3 * narrow + 2 * block(1)


class Pairs(nn.ModuleList):
    """Six blocks of two layers."""

    def __init__(self):
        super().__init__(
            nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh()) for _ in range(6)
        )

    def forward(self, x):
        for block in self:
            x = block(x)
        return x


def test_checkpoints_around_blocks_of_two_layers():
    """The last block but one, computed again: inputs of five, its two results, two gradients, those of the last
    block's weights, and the output."""
    batch, layer = 8192, block(256, 256) + block(256)
    config = StepConfig(train=True, optimizer="sgd", checkpointing=True)
    expected = 12 * layer + 10 * block(batch, 256) + 2 * layer + 2 * block(1)
    assert least(Pairs(), (1, 256), config=config, batch=batch) == expected


class Twice(nn.Module):
    """One weight in two products."""

    def __init__(self, keeps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(512, 512))
        self.keeps, self.kept = keeps, []

    def forward(self, x):
        again = self.weight.view_as(self.weight)
        if self.keeps:
            again.register_hook(self.kept.append)
        return (x @ again) @ again


@pytest.mark.parametrize(("keeps", "tensors"), [(False, 3), (True, 4)])
def test_where_two_gradients_meet_the_second_is_added_into_the_first(keeps, tensors):
    """As autograd does where nobody else has it: the weight and two gradients. Whoever keeps the sum has it beside that
    of the weight."""
    model, weight = Twice(keeps), block(512, 512)
    ran = least(model, (1, 512), config=StepConfig(train=True, optimizer="sgd"), batch=1)
    assert tensors * weight <= ran < (tensors + 1) * weight


class Block(nn.Module):
    """A Transformer block with 4 heads, as in Korthikanti et al. 2022, figure 2."""

    def __init__(self, width, fused):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.taken, self.given = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.fused = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), fused

    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = (
            one.view(batch, length, 4, -1).transpose(1, 2) for one in self.taken(self.first(x)).chunk(3, -1)
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
        else:
            mixed = functional.dropout((query @ key.transpose(2, 3)).softmax(-1), 0.1) @ value
        x = x + functional.dropout(self.given(mixed.transpose(1, 2).reshape(x.shape)), 0.1)
        return x + functional.dropout(self.down(functional.gelu(self.up(self.second(x)))), 0.1)


@pytest.mark.parametrize("fused", [True, False])
def test_a_transformer_block_keeps_what_was_published(fused):
    """In 16 bits s·b·h·34 bytes, and 5·a·s²·b more where the scores lie in memory (Korthikanti et al. 2022, arXiv
    2205.05198, equation 1); beside them the statistics of both normalisations and the logarithms of the fused kernel,
    float32 each."""
    width, length, batch, heads = 64, 128, 2, 4
    two, three = (nn.Sequential(*(Block(width, fused) for _ in range(number))) for number in (2, 3))
    config = StepConfig(train=True, optimizer="sgd", dtype=torch.float16)
    runs = [least(model, (1, length, width), config=config, batch=batch) for model in (two, three)]
    weights = sum(block(*one.shape, item=2) for one in three[0].parameters())
    published = length * batch * width * 34 + (0 if fused else 5 * heads * length * length * batch)
    statistics = 4 * block(batch, length) + (block(batch, heads, length) if fused else 0)
    assert runs[1] - runs[0] == weights + published + statistics
