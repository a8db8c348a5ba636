"""How a model that ran is called in Python, with the inputs that it had. Pure functions, jobs thread."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import expression, quoted, variable
from devexplorer.core.models import Operand, samples
from devexplorer.core.workspace.runs import LAZY_SEED, Ran

INPUTS = "_inputs"
"""What a sample input is called; no object can have this name."""


def _seed(report: Ran) -> list[str]:
    return [f"torch.manual_seed({LAZY_SEED})  # for the values of lazy parameters"] if report.initialised else []


def call(report: Ran, source: str | None) -> tuple[list[str], str]:
    """Lines that come first (imports, then a sample input where no tensors were named), and the call; `source` is the
    model's."""
    if report.given:
        return [], f"{expression(report.target)}({', '.join(map(variable, report.given))})"
    model = expression(report.target)
    return sample(model, report.inputs, source), f"{model}(*{INPUTS})"


def sample(model: str, inputs: Sequence[Operand], source: str | None) -> list[str]:
    """Lines that make the sample input again that such a model was given: the very same values."""
    if source in samples.recipes():
        return [
            "from devexplorer import samples",
            "",
            f"{INPUTS} = samples.sample_for({model}, {quoted(source or '')})",
        ]
    shapes = ",".join(f"{'x'.join(map(str, item.shape)) or 'scalar'}:{item.dtype}" for item in inputs)
    return [
        "from devexplorer import sample_inputs",
        "",
        f"{INPUTS} = sample_inputs({model}, {quoted(shapes)})",
    ]


def forward(report: Ran, source: str | None) -> str:
    """A forward; its output is printed in short where it was not kept."""
    before, called = call(report, source)
    if not report.bare:
        before = ["from devexplorer import first_tensor", *before]
        called = f"first_tensor({called})"
    last = f"print({called}.shape)" if report.kept_as is None else f"{variable(report.kept_as)} = {called}.detach()"
    return "\n".join([*before, *_seed(report), last])


def backward(report: Ran, source: str | None) -> str:
    """A backward of the sum of the output."""
    before, called = call(report, source)
    kept = "retain_graph=True" if report.retained else ""
    if not report.bare:
        return "\n".join(
            [
                "from devexplorer import total",
                *before,
                *_seed(report),
                f"total({called}).backward({kept})",
            ]
        )
    return "\n".join([*before, *_seed(report), f"{called}.sum().backward({kept})"])
