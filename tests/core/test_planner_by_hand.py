"""The planner against sums done by hand: small models of which every block is listed.

A block is what the allocator gives: the request rounded up to 512 B. float32 has 4 B.
"""

import pytest
import torch
from fakes.planning import replayed
from torch import nn

from devexplorer.core.planner.run import Way

pytestmark = pytest.mark.usefixtures("virtual")


def block(*shape, item=4):
    """Bytes of the block of a tensor of this shape."""
    elements = 1
    for length in shape:
        elements *= length
    return -(-elements * item // 512) * 512


def test_a_block_is_rounded_up():
    assert [block(1), block(128), block(129), block(100, 30)] == [512, 512, 1024, 12288]


def test_a_linear_layer_in_inference():
    """Weight, bias and input are there, and the output is made: no more."""
    ran = replayed(nn.Linear(100, 30), (1, 100), way=Way(), batch=64)
    weight, bias, given, output = block(30, 100), block(30), block(64, 100), block(64, 30)
    assert (weight, bias, given, output) == (12288, 512, 25600, 7680)
    assert ran.parts == {
        "parameters": weight + bias,
        "buffers": 0,
        "gradients": 0,
        "optimizer": 0,
        "activations": given + output,
    }
    assert ran.peak == weight + bias + given + output == 46080


def two_layers():
    return nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 30))


def test_two_layers_in_training_with_sgd():
    """Most is there in backward, when the gradient of the activation between the layers was made.

    Forward keeps the result of the ReLU (in the place of its input, which nobody needs) for the backward of both it and the second layer;
    the output itself is gone by then. Backward begins with a gradient of the loss and goes through the second layer: the gradient of its
    input and of its weight and bias; then through the ReLU, which makes a new tensor while the one it reads is still there.
    """
    batch = 640
    ran = replayed(two_layers(), (1, 100), way=Way(train=True, optimizer="sgd"), batch=batch)
    parameters = [block(200, 100), block(200), block(30, 200), block(30)]
    given, hidden = block(batch, 100), block(batch, 200)
    second = [block(30, 200), block(30)]
    """Gradients of the second layer's weight and bias."""
    loss_gradient = block(1)
    assert (parameters, given, hidden, second) == ([80384, 1024, 24064, 512], 256000, 512000, [24064, 512])
    through_relu = given + hidden + 2 * hidden + loss_gradient
    loss = block(1)
    assert ran.parts == {
        "parameters": sum(parameters),
        "buffers": 0,
        "gradients": sum(second),
        "optimizer": 0,
        "activations": through_relu + loss,
    }
    assert ran.peak == 1923584


def test_two_layers_in_training_with_adam():
    """With a small batch most is there in the optimizer's step: two moments per parameter, and a denominator for all of them at a time."""
    ran = replayed(two_layers(), (1, 100), way=Way(train=True, optimizer="adam"), batch=1)
    parameters = sum([block(200, 100), block(200), block(30, 200), block(30)])
    given, denominators = block(1, 100), parameters
    assert ran.parts == {
        "parameters": parameters,
        "buffers": 0,
        "gradients": parameters,
        "optimizer": 2 * parameters,
        "activations": given + denominators,
    }
    assert ran.peak == 5 * 105984 + 512


def test_momentum_keeps_one_tensor_per_parameter_and_sgd_none():
    parameters = sum([block(200, 100), block(200), block(30, 200), block(30)])
    plain, momentum = (
        replayed(two_layers(), (1, 100), way=Way(train=True, optimizer=optimizer), batch=1).parts["optimizer"]
        for optimizer in ("sgd", "momentum")
    )
    assert (plain, momentum) == (0, parameters)


def test_buffers_are_no_parameters():
    ran = replayed(nn.Sequential(nn.Linear(100, 300), nn.BatchNorm1d(300)), (2, 100), way=Way(), batch=2)
    assert ran.parts["buffers"] == 2 * block(300) + block(1, item=8)  # running mean and variance; the number of batches
    assert ran.parts["parameters"] == block(300, 100) + 3 * block(300)


def test_what_is_tied_counts_once():
    first, second = nn.Linear(100, 100), nn.Linear(100, 100)
    second.weight = first.weight
    ran = replayed(nn.Sequential(first, second), (1, 100), way=Way(train=True, optimizer="adamw"), batch=1)
    once = block(100, 100) + 2 * block(100)
    assert {kind: ran.parts[kind] for kind in ("parameters", "gradients", "optimizer")} == {
        "parameters": once,
        "gradients": once,
        "optimizer": 2 * once,
    }


def test_a_frozen_parameter_has_neither_gradient_nor_state():
    model = two_layers()
    model[0].requires_grad_(False)
    ran = replayed(model, (1, 100), way=Way(train=True, optimizer="adamw"), batch=1)
    trained = block(30, 200) + block(30)
    assert ran.parts["optimizer"] == 2 * trained


def test_a_cast_halves_parameters_and_activations():
    whole, half = (replayed(nn.Linear(512, 512), (1, 512), way=Way(dtype=dtype), batch=16) for dtype in (None, torch.bfloat16))
    assert half.peak * 2 == whole.peak


def test_autocast_keeps_the_cast_of_a_weight_until_it_ends():
    """As on CUDA: both weights have a cast beside them until the end, one each, although the first layer runs twice."""
    first, second = (nn.Linear(128, 128, bias=False) for _ in range(2))
    ran = replayed(nn.Sequential(first, second, first), (1, 128), way=Way(autocast=torch.bfloat16), batch=4)
    weight, cast = block(128, 128), block(128, 128, item=2)
    given, hidden = block(4, 128), block(4, 128, item=2)
    assert ran.parts["parameters"] == 2 * weight
    assert ran.parts["activations"] == given + 2 * cast + 2 * hidden, "what goes into the last layer, and what comes out of it"
