"""Attention on a virtual GPU is one kernel: the CPU's values and gradients, without the scores in memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # as everybody writes it
from torch import Tensor

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.virtual.backend import meta_empty

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 1024, 64


pytestmark = pytest.mark.usefixtures("virtual")


def _attend(
    device: str, dtype: torch.dtype, mask: str | None, *, causal: bool, gqa: bool, dropout: float = 0.0
) -> list[Tensor]:
    """Output and every gradient, on the CPU."""
    torch.manual_seed(0)
    keys = 2 if gqa else 4
    shapes = ((2, 4, 7, 8), (2, keys, 5, 8), (2, keys, 5, 16))
    leaves = [torch.randn(shape, dtype=dtype).to(device).detach().requires_grad_() for shape in shapes]
    given = None
    if mask == "bool":
        hidden = torch.rand(2, 1, 7, 5) > 0.3
        hidden[..., 0] = True  # every query sees something
        given = hidden.to(device)
    elif mask == "float":
        given = torch.randn(7, 5, dtype=dtype).to(device).detach().requires_grad_()
        leaves.append(given)
    out = F.scaled_dot_product_attention(
        *leaves[:3], attn_mask=given, dropout_p=dropout, is_causal=causal, enable_gqa=gqa
    )
    (out * out).sum().backward()
    return [one.detach().cpu() for one in (out, *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("mask", "causal"), [(None, False), (None, True), ("bool", False), ("float", False)])
@pytest.mark.parametrize("gqa", [False, True])
def test_it_computes_what_the_cpu_computes(dtype, mask, causal, gqa):
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-4
    for host, there in zip(
        *(_attend(device, dtype, mask, causal=causal, gqa=gqa) for device in ("cpu", "vgpu:0")), strict=True
    ):
        torch.testing.assert_close(there, host, rtol=tolerance, atol=tolerance)


def test_dropout_drops_the_same_weights_forward_and_backward():
    for host, there in zip(
        *(_attend(device, torch.float32, None, causal=False, gqa=False, dropout=0.4) for device in ("cpu", "vgpu:0")),
        strict=True,
    ):
        torch.testing.assert_close(there, host, rtol=1e-4, atol=1e-4)


@pytest.fixture
def a10(virtual):
    """A card with flash attention, beside the T4s, which have none."""
    return virtual.add(parse_virtual("NVIDIA A10"))[0].id


def test_the_scores_never_lie_in_memory(a10):
    x = meta_empty((BATCH, HEADS, LENGTH, WIDTH), torch.float16, a10).requires_grad_()
    before = torch.vgpu.memory_allocated(a10)
    out = F.scaled_dot_product_attention(x, x, x)
    rows = BATCH * HEADS * LENGTH
    assert torch.vgpu.memory_allocated(a10) - before == rows * WIDTH * 2 + rows * 4
    torch.vgpu.reset_peak_memory_stats(a10)
    out.sum().backward()
    loss, numbers, tensor = 2 * 512, rows * 4, rows * WIDTH * 2
    # Alive: out with its sums, three gradients; the kernel's own: the query's gradient in float32, copies of out and of
    # its gradient, whose heads are apart, and a number for each row.
    assert torch.vgpu.max_memory_allocated(a10) == before + loss + 2 * numbers + (1 + 3 + 2 + 2) * tensor
    assert torch.vgpu.max_memory_allocated(a10) < before + rows * LENGTH * 2


def test_an_older_card_has_the_memory_efficient_kernel():
    """It rounds the length of its sums up, and copies the output's gradient, whose heads are apart, not the output."""
    length = LENGTH - 4
    x = meta_empty((BATCH, HEADS, length, WIDTH), torch.float16, "vgpu:0").requires_grad_()
    before = torch.vgpu.memory_allocated()
    out = F.scaled_dot_product_attention(x, x, x)
    tensor, sums = x.numel() * 2, BATCH * HEADS * LENGTH * 4
    assert torch.vgpu.memory_allocated() - before == tensor + sums
    torch.vgpu.reset_peak_memory_stats()
    out.sum().backward()
    accumulator = BATCH * HEADS * LENGTH * WIDTH * 4
    assert torch.vgpu.max_memory_allocated() == before + 2 * 512 + 2 * sums + (1 + 3 + 1) * tensor + accumulator


def test_in_float32_the_backward_multiplies_output_and_gradient_first():
    """For a number per row, before the kernel: the product, its sums, and these once more with the heads apart."""
    x = meta_empty((BATCH, LENGTH, HEADS, WIDTH), torch.float32, "vgpu:0").transpose(1, 2).requires_grad_()
    out = F.scaled_dot_product_attention(x, x, x)
    grad = meta_empty((BATCH, LENGTH, HEADS, WIDTH), torch.float32, "vgpu:0").transpose(1, 2)
    before = torch.vgpu.memory_allocated()
    torch.vgpu.reset_peak_memory_stats()
    out.backward(grad)
    tensor, numbers = x.numel() * 4, BATCH * HEADS * LENGTH * 4
    assert torch.vgpu.max_memory_allocated() == before + 3 * tensor + tensor + 2 * numbers


def heads_together(out):
    """Whether the heads of a row are together."""
    return out.transpose(1, 2).is_contiguous()


def test_flash_attention_lays_its_output_out_as_the_query_is(a10):
    """Heads that were split off a linear layer are together, and so they come out: taking them together again copies
    nothing. A rotary embedding leaves them apart, and then that is a copy."""
    together = meta_empty((BATCH, LENGTH, HEADS, WIDTH), torch.float16, a10).transpose(1, 2)
    apart = meta_empty((BATCH, HEADS, LENGTH, WIDTH), torch.float16, a10)
    assert heads_together(F.scaled_dot_product_attention(together, together, together))
    assert not heads_together(F.scaled_dot_product_attention(apart, apart, apart))
    mask = meta_empty((LENGTH, LENGTH), torch.float16, a10)
    assert heads_together(F.scaled_dot_product_attention(apart, apart, apart, mask)), "the memory-efficient kernel"
    wide = meta_empty((BATCH, HEADS, LENGTH, WIDTH), torch.float32, a10)
    assert heads_together(F.scaled_dot_product_attention(wide, wide, wide)), "the same"
    older = meta_empty((BATCH, HEADS, LENGTH, WIDTH), torch.float16, "vgpu:0")
    assert heads_together(F.scaled_dot_product_attention(older, older, older)), "the same on a T4"


FUSED, PLAIN = True, False


@pytest.mark.parametrize(
    ("dtype", "given", "on_a_t4", "on_an_a10"),
    [
        (torch.float16, {}, FUSED, FUSED),
        (torch.bfloat16, {}, PLAIN, FUSED),
        (torch.float32, {}, FUSED, FUSED),
        (torch.float64, {}, PLAIN, PLAIN),
        (torch.float16, {"width": 20}, PLAIN, FUSED),
        (torch.float32, {"width": 18}, PLAIN, PLAIN),
        (torch.float16, {"keys": 2}, PLAIN, FUSED),
        (torch.float32, {"keys": 2}, PLAIN, PLAIN),
        (torch.float16, {"keys": 2, "masked": True}, PLAIN, PLAIN),
        (torch.float16, {"masked": True}, FUSED, FUSED),
    ],
)
def test_what_no_kernel_of_the_card_takes_is_taken_apart(a10, dtype, given, on_a_t4, on_an_a10):
    keys, width = given.get("keys", HEADS), given.get("width", WIDTH)
    for device, fused in (("vgpu:0", on_a_t4), (a10, on_an_a10)):
        query, key = (meta_empty((BATCH, heads, LENGTH, width), dtype, device) for heads in (HEADS, keys))
        mask = meta_empty((LENGTH, LENGTH), dtype, device) if given.get("masked") else None
        torch.vgpu.reset_peak_memory_stats(device)
        before = torch.vgpu.memory_allocated(device)
        F.scaled_dot_product_attention(query, key, key, mask, enable_gqa=keys != HEADS)
        scores = BATCH * HEADS * LENGTH * LENGTH * dtype.itemsize
        assert (torch.vgpu.max_memory_allocated(device) - before < scores) is fused, device


def test_heads_of_an_odd_size_are_filled_up_for_flash_attention(a10):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 20, dtype=torch.bfloat16)
    results = []
    for device in ("cpu", a10):
        leaf = x.to(device).detach().requires_grad_()
        out = F.scaled_dot_product_attention(leaf, leaf, leaf, is_causal=True)
        out.square().sum().backward()
        results.append([item.detach().cpu() for item in (out, leaf.grad)])
    for host, there in zip(*results, strict=True):
        assert there.shape == host.shape
        torch.testing.assert_close(there, host, rtol=3e-2, atol=3e-2)


def test_its_products_cost_time(virtual):
    def seconds(length: int) -> float:
        gpu = virtual.gpus[0]
        x = meta_empty((1, 8, length, 64), torch.float16, "vgpu:0")
        before = gpu.clock.thread_seconds
        F.scaled_dot_product_attention(x, x, x)
        return gpu.clock.thread_seconds - before

    assert 3.5 < seconds(16384) / seconds(8192) < 4.1  # the square of the length, less what a launch costs


def test_a_mask_and_causality_together_are_refused():
    x = torch.randn(1, 2, 4, 8).to("vgpu:0")
    with pytest.raises(RuntimeError, match="Explicit attn_mask should not be set"):
        F.scaled_dot_product_attention(x, x, x, attn_mask=torch.zeros(4, 4).to("vgpu:0"), is_causal=True)
