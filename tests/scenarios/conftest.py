"""Every behaviour is tested on the CPU alone, on virtual GPUs, and on real ones if available."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of


@pytest.fixture(params=["cpu", "vgpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine or this torch has no CUDA device")
    with place_of(request.param) as made:
        yield made
