"""A defect of each kind, injected at a random place of a clean model, is found at its line;
`tests/soak/doctor_injection.py` does more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.defects import DEFECTS
from fakes.injection import Outcome, Subject, corpus, looked_for, wrapped_zoo

from devexplorer.core.virtual.backend import install

ZOO = ("lenet", "mlp", "tiny-gpt", "custom-layers")
TRIES = 12


@pytest.fixture(scope="module")
def subjects() -> list[Subject]:
    from devexplorer.core.models import samples

    return [*corpus(), *wrapped_zoo([name for name in ZOO if name in samples.recipes()], random.Random(0))]


@pytest.fixture(autouse=True)
def no_cards() -> Iterator[None]:
    install().reset()
    yield
    install().reset()


def test_there_are_enough_kinds() -> None:
    assert len(DEFECTS) >= 25
    assert all(sum(text.count("# defect") for text in (one.make, one.work)) == 1 for one in DEFECTS.values())


@pytest.mark.parametrize("kind", DEFECTS)
def test_a_defect_at_a_random_place_is_found_at_its_line(kind: str, subjects: list[Subject], tmp_path: Path) -> None:
    outcome: Outcome | None = None
    for subject in sorted(subjects, key=lambda one: random.Random(f"{kind} {one.name}").random())[
        :TRIES
    ]:  # a new file moves few others
        outcome = looked_for(subject, kind, DEFECTS[kind], tmp_path.resolve(), random.Random(f"{kind} {subject.name}"))
        if not outcome.state.startswith("invalid"):
            break
    assert outcome is not None
    assert outcome.state == "found", [(one.rule, one.line, one.message) for one in outcome.said]
    assert not outcome.others
