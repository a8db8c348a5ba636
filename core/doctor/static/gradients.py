"""Rule `cut-from-autograd`: parameters that are only used where autograd does not look. The main thread.

The source alone decides, and only about a module's own parameters: where a backward has run, `doctor.gradients` knows
more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from torch import Tensor

from devexplorer.core.doctor.static.forward import CUTS, Cut, Use, forward_of
from devexplorer.core.doctor.static.model_context import MOST_LISTED, ModelContext, joined, listed
from devexplorer.core.models.walk import is_uninitialised

_FACTS = (
    "shape",
    "dtype",
    "device",
    "size",
    "dim",
    "ndim",
    "numel",
    "requires_grad",
    "grad",
    "is_cuda",
    "nbytes",
    "element_size",
    "names",
)
_WHOLE = (
    "children",
    "named_children",
    "modules",
    "named_modules",
    "parameters",
    "named_parameters",
    "_modules",
    "_parameters",
)
"""Where a module speaks of all that it has."""
_Trainable = Mapping[str, Tensor]
"""Parameters of a module and those below it that require grad, by path from there."""


def report_cuts(context: ModelContext, ran: Collection[int] | None) -> None:
    """Findings about modules' own parameters that require grad and that forward computes with in cut places only.

    `ran`: the ids of the modules that took part, where that is known.
    """
    reported: set[int] = set()
    read: dict[type, list[Use]] = {}
    for path, module in context.modules:
        if ran is not None and id(module) not in ran:
            continue
        parameters = {
            name: item for name, item in module.named_parameters() if item.requires_grad and not is_uninitialised(item)
        }
        if not parameters:
            continue
        kind = type(module)
        if kind not in read:
            read[kind] = forward_of(kind)
        for cut, names in _together(_own(read[kind], parameters)).items():
            left = [name for name in names if id(parameters[name]) not in reported]
            if left:
                reported.update(id(parameters[name]) for name in left)
                _add(context, path, cut, left)


def _together(cuts: Iterable[tuple[str, Cut]]) -> dict[Cut, list[str]]:
    """The parameters behind each line, with all that cuts there."""
    by_place: dict[object, list[tuple[str, Cut]]] = {}
    for name, cut in cuts:
        by_place.setdefault(cut.place, []).append((name, cut))
    return {
        some[0][1]._replace(code=listed([cut.code for _, cut in some])): list(dict.fromkeys(name for name, _ in some))
        for some in by_place.values()
    }


def _add(context: ModelContext, path: str, cut: Cut, names: list[str]) -> None:
    whose = listed([f"self.{name}" for name in names])
    them, itself = ("it gets", "itself") if len(names) == 1 else ("they get", "themselves")
    if not cut.block:
        own = len(names) <= MOST_LISTED  # the code names each of them
        message = (
            f"{cut.place.function} uses {cut.code}, values without their history: {them} no gradient."
            if own
            else (
                f"{cut.code} in {cut.place.function} has no history: {whose} {'gets' if len(names) == 1 else 'get'} no"
                " gradient."
            )
        )
        fix = (
            f"Use {f'{whose} {itself}' if own else 'the value itself'}; what should not learn is frozen with"
            " requires_grad_(False)."
        )
    else:
        message = (
            f"{cut.place.function} uses {whose} within {cut.code}, where nothing has a history: {them} no gradient."
        )
        fix = "Move that out of the block, or freeze what should not learn: requires_grad_(False)."
    context.collector.add("cut-from-autograd", message, fix, path=joined(path, names[0]), place=cut.place)


def _own(uses: Iterable[Use], parameters: _Trainable) -> Iterator[tuple[str, Cut]]:
    """Parameters that forward computes with, and in cut places only: `self.weight.data`, or within `no_grad`."""
    cuts: dict[str, list[Cut]] = {}
    free: set[str] = set()
    for use in uses:
        depth, name = _parameter(use.names, parameters)
        if name is None:
            free.update(_below(use.names, parameters))  # whole modules: only gradients can tell
            continue
        after = use.names[depth:]
        cut = after and after[0] in CUTS
        if not _computes(after[1:] if cut else after, use.called):
            continue
        if cut:
            cuts.setdefault(name, []).append(Cut(use.code(depth), use.place))
        elif use.within is not None:
            cuts.setdefault(name, []).append(use.within)
        else:
            free.add(name)
    for name, found in cuts.items():
        if name not in free:
            yield name, found[0]


def _below(names: tuple[str, ...], parameters: _Trainable) -> list[str]:
    """Parameters of the module that these names lead to; all of them for `self` itself."""
    start = ".".join(names)
    everything = not names or names[0] in _WHOLE
    return [name for name in parameters if everything or name.startswith(f"{start}.")]


def _parameter(names: tuple[str, ...], parameters: _Trainable) -> tuple[int, str | None]:
    """How many of the names lead to a parameter, and which."""
    for depth in range(len(names), 0, -1):
        dotted = ".".join(names[:depth])
        if dotted in parameters:
            return depth, dotted
    return 0, None


def _computes(after: tuple[str, ...], called: bool) -> bool:
    """Whether what follows a parameter is arithmetic, and not a question about its shape or a change in place."""
    if not after:
        return True
    in_place = called and after[-1].endswith("_") and not after[-1].endswith("__")
    return after[0] not in _FACTS and not in_place
