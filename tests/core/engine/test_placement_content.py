"""Snapshots beyond tensors: the optimizer's state, a dispatched model, tensors without a plain shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from devexplorer.core.engine.link import FRAME_HEAD, decode_event, frame
from devexplorer.core.models.extras import Extras
from devexplorer.core.records import ObjectChanged, ObjectSnapshot, Row
from devexplorer.core.workspace.placement import snapshot


def row(of: ObjectSnapshot, path: str) -> Row:
    return next(row for row in of.rows if row.path == path)


def trained(optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> tuple[nn.Module, Extras]:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    made = optimizer(model)
    model(torch.ones(1, 3)).sum().backward()
    made.step()
    return model, Extras(optimizer=made, optimizer_text="Adam, lr 0.001")


def test_the_optimizer_s_state_is_below_its_parameter_after_the_gradient_and_counts_on_its_device() -> None:
    model, extras = trained(lambda model: torch.optim.Adam(model.parameters()))
    seen = snapshot("m", model, extras)
    paths = [row.path for row in seen.rows]
    at = paths.index("0.weight")
    assert paths[at : at + 5] == [
        "0.weight",
        "0.weight.grad",
        "0.weight.step",
        "0.weight.exp_avg",
        "0.weight.exp_avg_sq",
    ]
    average, step = row(seen, "0.weight.exp_avg"), row(seen, "0.weight.step")
    assert (average.kind, average.name, average.depth, average.shape) == (
        "state",
        "exp_avg",
        row(seen, "0.weight").depth + 1,
        (2, 3),
    )
    assert (step.kind, step.shape, step.devices, step.elements) == ("state", (), ("cpu",), 1)
    weights = sum(p.nbytes for p in model.parameters())
    assert seen.rows[0].bytes == weights, "a model's own bytes are its parameters and buffers"
    assert seen.bytes_by_device == {"cpu": 4 * weights + 4 * 4}
    assert seen.tensors_by_device == {"cpu": 4 * 5}
    assert seen.optimizer == "Adam, lr 0.001"


def test_looking_at_an_optimizer_gives_it_no_state() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    seen = snapshot("m", model, Extras(optimizer=optimizer))
    assert not optimizer.state
    assert not [row for row in seen.rows if row.kind == "state"]


def test_the_state_of_a_tied_parameter_counts_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    seen = snapshot("m", model, Extras(optimizer=optimizer))
    assert row(seen, "1.weight.momentum_buffer").tied_to == "0.weight.momentum_buffer"
    assert seen.bytes_by_device == {"cpu": 3 * 16}


def test_a_parameter_under_two_names_of_one_module_counts_once_everywhere() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2, bias=False)
            self.inner.register_parameter("again", self.inner.weight)
            self.side = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
            self.side[0].weight = self.inner.weight
            self.side[1].weight = self.inner.weight

    seen = snapshot("m", nn.Sequential(Twice()))
    assert {path: row(seen, path).bytes for path in ("", "0", "0.inner", "0.side", "0.side.0", "0.side.1")} == {
        "": 16, "0": 16, "0.inner": 16, "0.side": 16, "0.side.0": 16, "0.side.1": 16,
    }  # fmt: skip


def test_who_dispatched_a_model_is_said_in_one_sentence() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(6)))
    assert snapshot("m", model).dispatched is None
    model.hf_device_map = {"": 0}  # type: ignore[assignment]
    assert snapshot("m", model).dispatched is None, "all of it on one card: accelerate has moved it, and hooked nothing"
    model.hf_device_map = {**{str(at): 0 for at in range(5)}, "5": "disk"}  # type: ignore[assignment]
    model[5]._hf_hook = object()
    model[5].to("meta")
    words = snapshot("m", model).dispatched
    assert words is not None
    assert "0 to 4 (5 parts) on cuda:0, 5 on disk; activations change devices at 5 (cpu to meta)" in words
    assert "Join" in words


def test_hooks_of_accelerate_are_seen_without_a_map_and_our_own_hops_are_not_called_so() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    model[1]._hf_hook = object()
    words = snapshot("m", model).dispatched
    assert words is not None
    assert "1 has a hook of accelerate" in words

    class Hops:
        latest = ()

        def remove(self) -> None:
            """Nothing to remove."""

    ours = snapshot("m", model, Extras(hops=Hops()))  # type: ignore[arg-type]
    assert ours.hops
    assert ours.dispatched is None


NESTED = [torch.ones(2, 3), torch.ones(4, 3)]


@pytest.mark.parametrize(
    ("make", "shape", "elements"),
    [
        (lambda: torch.ones(2, 3).to_sparse(), (2, 3), 6),
        (lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8), (2, 3), 6),
        (lambda: torch.nested.nested_tensor(NESTED), None, 18),
        (lambda: torch.nested.nested_tensor(NESTED, layout=torch.jagged), None, 18),
        (lambda: torch.ones(2, 3, device="meta"), (2, 3), 6),
        (lambda: torch.ones(2, 3, dtype=torch.complex64), (2, 3), 6),
        (lambda: torch.ones(1).expand(2, 3), (2, 3), 6),
    ],
    ids=["sparse", "quantised", "nested", "jagged", "meta", "complex", "expanded"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own: these kinds are prototypes, or on their way out
def test_every_kind_of_tensor_has_a_row_that_crosses_the_link(
    make: Callable[[], Tensor], shape: tuple[int, ...] | None, elements: int
) -> None:
    model = nn.Linear(1, 1)
    model.register_buffer("odd", make())
    seen = snapshot("m", model)
    odd = row(seen, "odd")
    assert (odd.shape, odd.elements, odd.initialised) == (shape, elements, True)
    event = ObjectChanged(snapshot=seen)
    assert decode_event(frame(event)[FRAME_HEAD:]) == event
    assert row(seen, "weight").shape == (1, 1)
