"""Follows histories through a forward and its backward, and says which parameters got no gradient and why. The thread
that is watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._functorch import vmap

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.gradients.explain import explained
from devexplorer.core.doctor.gradients.graph import Graph
from devexplorer.core.doctor.gradients.lineage import Lineage
from devexplorer.core.isolation.source_location import SourceLocation

_BATCHED = ("_add_batch_dim", "_remove_batch_dim")


class Gradients(Lineage):
    """Of one run of one model; `OpTracer` tells it what happens."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor] = ()) -> None:
        """`inputs` are what its forward gets."""
        super().__init__(model, inputs)
        self._model = model
        self._graph: Graph | None = None

    @contextmanager
    def tracing(self, until: FrameType | None) -> Iterator[None]:
        """The run."""
        self.switches.until = until
        try:
            with self.switches.watching_inference(), self._through_vmap():
                yield
        finally:
            self.switches.until = None

    def _through_vmap(self) -> AbstractContextManager[Any]:
        """Within, what `vmap` makes of a tensor is known to be made of it: no call of torch's shows that."""

        def passing(function: Callable[..., Any]) -> Callable[..., Any]:
            def passed(tensor: Any, *rest: Any) -> Any:
                result = function(tensor, *rest)
                if isinstance(result, Tensor) and isinstance(tensor, Tensor):
                    with torch._C.DisableTorchFunction():
                        self.pass_on(result, tensor)
                return result

            return passed

        changed: dict[str, Any] = {name: passing(getattr(vmap, name)) for name in _BATCHED}
        changing: AbstractContextManager[Any] = patch.multiple(vmap, **changed)
        return changing

    def backward(self, roots: Sequence[Tensor]) -> None:
        """A backward from these is about to begin."""
        if self._graph is None:
            self._graph = Graph(roots)

    def explain(self, line_of: Callable[[str], SourceLocation | None], collector: FindingCollector) -> None:
        """Report every parameter without a gradient; before the optimizer's step, and once."""
        explained(self, self._graph, self._model, line_of, collector)

    def close(self) -> None:
        """Let go of the model and of the graph."""
        if self._graph is not None:
            self._graph.close()
