"""What a plan knows without the values of parameters: masks that are made of the inputs, and what such values are
written into."""

import pytest
from fakes.planning import ONE, subject
from torch import nn

from devexplorer.core.planner.run import OnlyWithValues, StepConfig, run_step

pytestmark = pytest.mark.usefixtures("virtual")


class Layer(nn.Linear):
    """`body` gets the layer's input and output."""

    def __init__(self, body):
        super().__init__(8, 8)
        self.body = body

    def forward(self, x):
        return self.body(x, super().forward(x))


def made(body):
    return subject(Layer(body), (2, 16, 8))


def _mask_read(x, h):
    padded = x.abs().sum(-1) == 0
    return h.masked_fill(padded[..., None], 0.0) if padded.any() else h


def _padding_left_out(x, h):
    return h[x.abs().sum(-1) > 0]


def _rows_written(x, h):
    found = h.new_zeros(h.shape)
    found[x.abs().sum(-1) > 0] = 1.0
    return found + h


def _bool_mask_for_attention(x, h):
    mask = (x[:, :, 0] * 0 == 0)[:, None, None].expand(-1, 1, x.shape[1], -1)
    h = h[:, None]
    return nn.functional.scaled_dot_product_attention(h, h, h, mask)


def _result_written_into_values(x, h):
    found = x.new_zeros(x.shape)
    found[:, 0] = h[:, 0]
    found.mul_(h)
    return found


@pytest.mark.parametrize(
    "body",
    [_mask_read, _padding_left_out, _rows_written, _bool_mask_for_attention, _result_written_into_values],
    ids=lambda body: body.__name__,
)
@pytest.mark.parametrize("train", [False, True])
def test_masks_of_the_inputs_need_no_values_of_the_model(body, train):
    """The same memory as where every value is there."""
    without, there = (run_step(made(body), StepConfig(train=train), 2, ONE, values=each)[0] for each in (False, True))
    assert without.without_end == there.without_end


@pytest.mark.parametrize("part", ["view", "base"])
def test_what_a_result_without_values_is_written_into_has_none_any_more(part):
    """Also seen through another view of the same memory: what was there before would be read as if it were true."""

    def body(x, h):
        base = x.new_zeros(x.shape)
        view = base[:, 0]
        if part == "view":
            base.add_(h)
        else:
            view.copy_(h[:, 0])
        return h if (view if part == "view" else base).sum() == 0 else -h

    with pytest.raises(OnlyWithValues):
        run_step(made(body), StepConfig(), 2, ONE)
