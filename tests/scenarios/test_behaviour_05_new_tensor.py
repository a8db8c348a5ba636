"""Behaviour 5: a tensor is created on a device, and memory is used on that device only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from places import Place

from devexplorer.core.records import NewTensor


@pytest.mark.parametrize("fill", ["ones", "rand", "arange", "text", "file"])
def test_memory_is_used_on_that_device_only(place: Place, fill: str, tmp_path: Path) -> None:
    np.save(tmp_path / "values.npy", np.ones((300, 100), dtype=np.float32))
    command = NewTensor(
        fill=fill,
        shape=(30_000,) if fill == "arange" else (300, 100) if fill in ("ones", "rand") else (),
        text=str(tmp_path / "values.npy")
        if fill == "file"
        else str([[1.5] * 100] * 300).replace(" ", "")
        if fill == "text"
        else "",
        dtype="float32",
        device=place.first,
    )
    before = 0 if place.kind == "cpu" else place.allocated(place.first)
    answer = place.answer(command)
    assert not answer.failed
    assert place.workspace.held_bytes_by_device() == {place.first: 120_000}
    assert "117.19 KiB" in answer.words
    assert place.first in answer.words
    assert answer.code.startswith("import numpy as np\n\nx = " if fill == "file" else "x = ")
    names: dict[str, Any] = {"torch": torch}
    exec(answer.code, names)
    made = place.workspace.get("x")
    assert isinstance(made, torch.Tensor)
    assert (names["x"].device, names["x"].dtype) == (made.device, made.dtype)
    assert torch.equal(names.pop("x").cpu(), made.cpu()), "the code gives the same values"
    if place.kind != "cpu":
        assert 120_000 <= place.allocated(place.first) - before <= 120_000 + 512


def test_a_second_device_is_offered_where_there_is_none(place: Place) -> None:
    if place.second is None:
        assert place.offers_virtual_gpus(NewTensor(shape=(2,), device="cuda:1"))
    else:
        place.do(NewTensor(shape=(2,), device=place.second))
        assert place.held(place.second) == 8
