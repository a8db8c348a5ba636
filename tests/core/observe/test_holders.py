"""What keeps something of the workspace alive: the names there, never what is ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.observe.records import WhatHolds
from devexplorer.core.records import Answer, BuildModel, Combine, NewTensor


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with LocalEngine(None) as made:
        made.run(BuildModel(recipe="mlp"))
        yield made


def asked(engine: LocalEngine, target: str) -> Answer:
    (answer,) = [event for event in engine.run(WhatHolds(target=target)) if isinstance(event, Answer)]
    return answer


def test_a_parameter_is_held_by_its_model(engine: LocalEngine) -> None:
    answer = asked(engine, "mlp:0.weight")
    assert answer.title == "What keeps mlp:0.weight alive"
    assert answer.words.splitlines()[0] == "• mlp[0].weight, in the workspace"
    assert not any(ours in answer.words for ours in ("Workspace", "_objects", "transaction"))
    assert (answer.subject, answer.part) == ("mlp", "0.weight")


def test_a_tensor_is_held_by_its_name_and_by_the_graph_of_another(engine: LocalEngine) -> None:
    engine.run(NewTensor(name="a", shape=(2,), requires_grad=True))
    engine.run(Combine(left="a", right="a", operator="*"))
    words = asked(engine, "a").words.splitlines()
    assert words[0] == "• a, in the workspace"
    assert words[1].startswith("• the graph (MulBackward0 has saved it as ")
    assert words[1].endswith(", in the workspace")


def test_what_is_not_there_is_refused(engine: LocalEngine) -> None:
    answer = asked(engine, "mlp:9.weight")
    assert answer.failed
    assert "has no part '9.weight'" in answer.words
