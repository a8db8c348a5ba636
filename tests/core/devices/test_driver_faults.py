"""A part of tests/soak/driver_faults.py: each NVML function in turn hangs, fails, returns nonsense and loses its
card."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest
from fakes.driver_faults import ERROR_CODES, LIES, SURFACES, VANISHING, Bench, Case
from fakes.nvml_library import NvmlLibrary


@pytest.fixture
def bench(nvml_library: NvmlLibrary, cpu_build: None) -> Bench:
    return Bench(nvml_library)


def part(library: NvmlLibrary) -> Iterator[Case]:
    """Each function with one kind of fault, every eighth hanging too; kinds, codes, nonsense, losses and surfaces
    alternate."""
    surfaces, kinds = cycle(SURFACES), cycle(("fails", "lies", "vanishes"))
    what = {"fails": cycle(ERROR_CODES), "lies": cycle(LIES), "vanishes": cycle(VANISHING)}
    for number, (function, kind) in enumerate(zip(library.functions, kinds, strict=False)):
        if number % 8 == 1:  # hanging takes its time
            yield Case(next(surfaces), function, "hangs")
        yield Case(next(surfaces), function, kind, next(what[kind]))


def test_no_fault_of_one_function_costs_more_than_what_it_tells(bench: Bench) -> None:
    wrong = {str(case): outcome.wrong for case in part(bench.library) if (outcome := bench.run_case(case)).wrong}
    assert not wrong


@pytest.mark.skipif("watch" not in SURFACES, reason="its feature is not there")
def test_the_check_itself_finds_what_it_is_for(bench: Bench) -> None:
    case = Case("watch", "nvmlDeviceGetFanSpeed_v2", "fails", 999)
    assert not bench.run_case(case).wrong, "an H200 has no fan"
    bench.healthy["watch"]["nvml:1"]["power_w"] = 1.0
    (words,) = bench.run_case(case).wrong
    assert words.startswith("nvml:1: power_w is ")
    bench.healthy["watch"]["nvml:0"]["power_w"] = 1.0
    assert any("good card's power_w" in one for one in bench.run_case(case).wrong)
