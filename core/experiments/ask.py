"""Asks a tensor or a model one of Python's questions, really, and explains what it answers. Changes nothing. Runs on
the jobs thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput, DevExplorerError, first_line
from devexplorer.core.models.walk import device_id, is_uninitialised
from devexplorer.core.records.experiments import Ask
from devexplorer.core.records.messages import Answer, Fact, Offer
from devexplorer.core.workspace.workspace import Workspace


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
            subject=self.target.partition(":")[0],
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


TensorQuestion = Callable[[Asked], Answer]
ModelQuestion = Callable[[Workspace, Ask, nn.Module], Answer]


class Questions(NamedTuple):
    """Everything that can be asked: question -> who answers."""

    of_tensors: Mapping[str, TensorQuestion]
    of_models: Mapping[str, ModelQuestion]


CALLS = {"item": "item()", "tolist": "tolist()", "numpy": "numpy()", "cpu-numpy": "cpu().numpy()", "type": "type()"}
"""What each question is in Python, behind the tensor."""
WITHOUT_VALUES = ("device", "is-leaf")
"""What a lazy parameter can answer before its first forward."""


def ask(workspace: Workspace, command: Ask, questions: Questions) -> Answer:
    """The answer to one question. Raises `BadInput` where there is nothing to ask, or no such question."""
    if command.question not in questions.of_tensors:
        raise BadInput(f"there is no question '{command.question}'; there are {', '.join(questions.of_tensors)}")
    module = _module(workspace, command.target)
    if module is not None:
        if command.question not in questions.of_models:
            example = next(
                (
                    f"{command.target}{'.' if ':' in command.target else ':'}{path}"
                    for path, _ in module.named_parameters()
                ),
                None,
            )
            hint = f"; ask one of its parameters, for example '{example}'" if example else ""
            raise BadInput(f"'{command.target}' is a module, and '{command.question}' is a question for a tensor{hint}")
        return questions.of_models[command.question](workspace, command, module)
    target = workspace.find(command.target)
    tensor = target.tensor
    if is_uninitialised(tensor) and command.question not in WITHOUT_VALUES:
        raise BadInput(
            f"'{command.target}' has no shape and no values before its first forward; run the model once, then ask"
            " again"
        )
    asked = Asked(command.target, target.code(), tensor, workspace)
    try:
        return questions.of_tensors[command.question](asked)
    except DevExplorerError:
        raise
    # of a kind of tensor that can be in a model and answers next to nothing: sparse, quantised, without values
    except Exception as error:
        layout = str(tensor.layout).removeprefix("torch.")
        why = (
            f"It is {layout}, {str(tensor.dtype).removeprefix('torch.')}, and not every tensor can answer every"
            " question."
        )
        return asked.refused(CALLS.get(command.question, command.question), error, why)


def _module(workspace: Workspace, target: str) -> nn.Module | None:
    """The module that a target means; None when it means a tensor, or nothing."""
    name, _, path = target.partition(":")
    thing = workspace.get(name)
    if isinstance(thing, Tensor):
        return None
    return dict(thing.named_modules(remove_duplicate=False)).get(path)
