"""How the shapes of a sweep lie to each other: on a grid, on a line, or one after the other. Pure functions, any
thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from devexplorer.core.base import number_text, shape_text
from devexplorer.core.records import SweepCell

Shape = tuple[int, int, int]
SIDES = ("M", "N", "K")


@dataclass(frozen=True)
class Arrangement:
    """`grid`: columns `xs` and rows `ys`; `line`: a curve over `xs`; `order`: a curve over the number of the
    measurement, from 1."""

    kind: str
    x_name: str = ""
    y_name: str = ""
    fixed: str = ""
    """What all shapes share, in words: `K 4096`."""
    xs: tuple[int, ...] = ()
    ys: tuple[int, ...] = ()

    def place(self, shape: Shape) -> tuple[int, int]:
        """Value along x and y of a shape on a grid or a line."""
        return shape[SIDES.index(self.x_name[0])], shape[SIDES.index(self.y_name[0])] if self.y_name else 0


def arrange(shapes: Sequence[Shape], *, searched: bool = False) -> Arrangement:
    """How these shapes are best looked at. Those of a search have no order but that of time."""
    varying = [index for index in range(3) if len({shape[index] for shape in shapes}) > 1]
    fixed = (
        ", ".join(f"{SIDES[index]} {shapes[0][index]}" for index in range(3) if index not in varying) if shapes else ""
    )
    if searched or not shapes or not varying:
        return Arrangement("order", fixed="" if searched else fixed)
    tied = [index for index in varying if all(shape[index] == shape[varying[0]] for shape in shapes)]
    if tied == varying:
        xs = tuple(sorted({shape[tied[0]] for shape in shapes}))
        return Arrangement("line", " = ".join(SIDES[index] for index in tied), fixed=fixed, xs=xs)
    if len(varying) == 2 and len(set(shapes)) > max(len({shape[index] for shape in shapes}) for index in varying):
        y, x = varying
        xs, ys = (tuple(sorted({shape[index] for shape in shapes})) for index in (x, y))
        return Arrangement("grid", SIDES[x], SIDES[y], fixed, xs, ys)
    return Arrangement("order", fixed=fixed)


def cell_words(cell: SweepCell, top: SweepCell | None) -> str:
    """One shape in words, a line for each fact."""
    shape = shape_text(cell.shape)
    if cell.tflops is None:
        return f"{shape}\nnot measured: {cell.reason or 'no reason is known'}"
    lines = [
        shape,
        (
            f"{number_text(cell.tflops.median)} TFLOP/s, p20 {number_text(cell.tflops.p20)}, p80"
            f" {number_text(cell.tflops.p80)}"
        ),
    ]
    if cell is top:
        lines.append("the best of this sweep")
    elif top is not None and top.tflops is not None:
        lines.append(f"{100 * cell.tflops.median / top.tflops.median:.0f} % of the best")
    return "\n".join([*lines, f"{cell.iterations:,} iterations"] if cell.iterations else lines)


def ceiling(values: Sequence[float]) -> list[float]:
    """The highest value so far, one for each of `values`."""
    result: list[float] = []
    for value in values:
        result.append(max(value, result[-1]) if result else value)
    return result
