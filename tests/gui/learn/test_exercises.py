"""Does every exercise of the Learn tab in the whole window, with the clicks and keys that its steps describe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.doings import RESTARTS, do
from fakes.learner import Learner, learner_in
from PySide6.QtWidgets import QApplication

from devexplorer.core.learn.course import EXERCISES

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture(scope="module")
def learner(qapp: QApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learner]:
    """One window for all other exercises."""
    with learner_in(qapp, tmp_path_factory.mktemp("learner"), "2x Tesla T4") as me:
        yield me


@pytest.mark.parametrize("exercise_id", [one.id for one in EXERCISES if one.id != RESTARTS])
def test_it_is_done_as_its_steps_say(learner: Learner, exercise_id: str) -> None:
    do(learner, exercise_id)
