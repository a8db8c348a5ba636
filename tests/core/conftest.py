"""A workspace beside two virtual GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from places import Place, place_of


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made
