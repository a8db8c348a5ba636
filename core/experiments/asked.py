"""A tensor that is asked one of Python's questions, and the answers to it. Jobs thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from devexplorer.core.base import first_line, object_name
from devexplorer.core.experiments.records import Ask
from devexplorer.core.models import device_id
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.workspace import Workspace


class Asked(NamedTuple):
    """A tensor that is being asked."""

    target: str
    """As the user wrote it."""
    code: str
    """The tensor in Python."""
    tensor: Tensor
    workspace: Workspace

    @property
    def device(self) -> str:
        """Where it is."""
        return device_id(self.tensor.device)

    @property
    def simulated(self) -> bool:
        """Whether it is on a virtual GPU."""
        return any(info.id == self.device and info.simulated for info in self.workspace.registry.infos())

    def answer(
        self,
        title: str,
        words: str,
        *facts: tuple[str, str],
        code: str,
        failed: bool = False,
        offers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer; `offers` are labels of buttons and the questions that they ask of the same tensor."""
        return Answer(
            title=title,
            words=words,
            facts=tuple(Fact(*fact) for fact in facts),
            code=code,
            subject=object_name(self.target),
            failed=failed,
            offers=tuple(
                Offer(label, Ask(target=self.target, question=question)) for label, question in (offers or {}).items()
            ),
        )

    def refused(
        self, call: str, error: Exception, why: str, *facts: tuple[str, str], offers: Mapping[str, str] | None = None
    ) -> Answer:
        """Python raised: the answer says what, and why; its code shows the same error without ending a script."""
        kind, question = type(error).__name__, f"{self.code}.{call}"
        return self.answer(
            f"{self.target}.{call} raises {kind}",
            f"{kind}: {first_line(error)}. {why}",
            ("exception", kind),
            ("device", self.device),
            *facts,
            code=f"try:\n    print({question})\nexcept {kind} as _error:\n    print(_error)",
            failed=True,
            offers=offers,
        )
