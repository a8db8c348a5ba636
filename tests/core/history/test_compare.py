"""Comparison of runs: their difference, differing conditions, and what is not compared."""

from __future__ import annotations

import msgspec
import pytest
from fakes.runs import around, bandwidth, matmul, model, samples, scaling, stored, sweep

from devexplorer.core.base import BadInput
from devexplorer.core.benchmark.conditions import all_conditions, condition_rows
from devexplorer.core.benchmark.kind import figures, title
from devexplorer.core.history.compare import (
    MOST_RUNS,
    ComparedCell,
    DifferenceVerdict,
    compare,
    duration_text,
    refusal,
    speed_text,
)


def cell(first: object, second: object) -> ComparedCell:
    """The second of two runs that measured the same."""
    (row,) = compare([first, second]).rows  # type: ignore[list-item]
    assert row.cells[1] is not None
    return row.cells[1]


def test_a_clear_difference_has_a_ratio_an_interval_and_words() -> None:
    found = cell(stored(matmul(samples(100, seed=1)), 1), stored(matmul(samples(105, seed=2)), 2))
    assert found.verdict is DifferenceVerdict.CLEAR
    assert found.difference is not None
    assert found.difference.low is not None
    assert found.difference.low < found.difference.ratio == pytest.approx(1.05, rel=0.01)
    assert found.words.endswith("% faster, more than the noise of either run")
    assert found.interval == f"{found.difference.low:.3f} to {found.difference.high:.3f}"


def test_the_ratio_is_that_of_the_medians_on_show() -> None:
    """Only a part of the samples is stored."""
    first, second = (
        matmul(samples(100, seed=1), tflops=around(100.0)),
        matmul(samples(105, seed=2), tflops=around(110.0)),
    )
    found = cell(stored(first, 1), stored(second, 2))
    assert found.difference is not None
    assert found.difference.ratio == pytest.approx(1.1)
    assert found.difference.high is not None
    assert found.difference.high >= 1.1


def test_noise_is_no_difference() -> None:
    found = cell(stored(matmul(samples(100, seed=1)), 1), stored(matmul(samples(100, seed=2)), 2))
    assert found.verdict is DifferenceVerdict.NO_DIFFERENCE
    assert "no significant difference" in found.words


def test_a_small_steady_difference_is_named_as_such() -> None:
    noisy = samples(100, 0.03, seed=1)
    found = cell(stored(matmul(noisy), 1), stored(matmul([value * 1.02 for value in samples(100, 0.03, seed=9)]), 2))
    assert found.verdict in (DifferenceVerdict.SMALL, DifferenceVerdict.NO_DIFFERENCE)
    steady = cell(stored(matmul(noisy), 1), stored(matmul([value * 1.03 for value in noisy]), 2))
    assert steady.verdict is DifferenceVerdict.SMALL
    assert "less than the noise of 3.6 % but steady" in steady.words


def test_without_samples_only_the_middles_are_compared() -> None:
    found = cell(stored(matmul(median=100), 1), stored(matmul(median=110), 2))
    assert found.verdict is DifferenceVerdict.APART
    assert found.interval == "", "a range of middles is no 95 % interval"
    assert found.words == "10 % faster; the middle 60 % of both do not overlap"


def test_the_parts_of_a_sustained_run_serve_as_samples() -> None:
    parts = tuple(100 + number / 10 for number in range(8))
    first = matmul(parts_tflops=parts, noise=None)
    second = matmul(parts_tflops=tuple(value * 1.2 for value in parts), noise=None, median=120)
    assert cell(stored(first, 1), stored(second, 2)).verdict is DifferenceVerdict.CLEAR


def test_several_comparisons_at_once_need_more_evidence() -> None:
    first, second = matmul(samples(100, seed=1)), matmul(samples(100.3, seed=2))
    alone = cell(stored(first, 1), stored(second, 2))
    assert alone.difference is not None
    assert alone.difference.p_value is not None
    assert 0.001 < alone.difference.p_value < 0.05
    others = [stored(matmul(samples(100, seed=seed)), seed) for seed in range(3, 53 - 3)]
    together = compare([stored(first, 1), stored(second, 2), *others]).rows[0].cells[1]
    assert together is not None
    assert together.verdict is DifferenceVerdict.NO_DIFFERENCE


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.031, "3.1 % faster"),
        (0.88, "12 % slower"),
        (2.3, "2.30 times as fast"),
        (0.4, "0.400 times as fast"),
        (1.0001, "as fast"),
    ],
)
def test_ratios_in_words(ratio: float, words: str) -> None:
    assert speed_text(ratio) == words


def test_times_are_longer_or_shorter() -> None:
    assert [duration_text(ratio) for ratio in (0.8, 1.25, 3.0, 1.0)] == [
        "20 % shorter",
        "25 % longer",
        "3.00 times as long",
        "as long",
    ]


def test_every_shape_and_copy_is_compared_with_its_own() -> None:
    found = compare([stored(sweep(), 1), stored(sweep(speed=60), 2)])
    assert [row.label for row in found.rows] == ["256×256×256", "512×512×512"]
    assert [
        round(row.cells[1].difference.ratio, 3) for row in found.rows if row.cells[1] and row.cells[1].difference
    ] == [1.2, 1.2]
    found = compare([stored(bandwidth(), 1), stored(bandwidth(speed=24), 2)])
    assert found.rows[0].label == "cpu → cuda:0, 4.00 KiB, pinned"
    assert len(found.rows) == 4


def test_copies_to_different_cards_are_compared_by_what_the_cards_do() -> None:
    found = compare([stored(bandwidth("cuda:0"), 1), stored(bandwidth("cuda:1"), 2)])
    assert len(found.rows) == 4
    assert all(row.cells[1] is not None for row in found.rows)


def test_a_shape_that_a_run_lacks_is_a_gap_and_counted() -> None:
    less = msgspec.structs.replace(sweep(), cells=sweep().cells[:1])
    found = compare([stored(sweep(), 1), stored(less, 2), stored(sweep(), 3)])
    assert found.rows[1].cells[1] is None
    assert found.rows[1].cells[2] is not None
    found = compare([stored(sweep(), 1), stored(less, 2)])
    assert len(found.rows) == 1
    assert any("Left out: 1 figure" in text for text in found.remarks)


def test_simulated_runs_have_no_noise() -> None:
    for result in (matmul(samples(100), simulated=True), msgspec.structs.replace(model(), simulated=True)):
        assert {figure.noise for figure in figures(result)} == {None}
    found = compare([stored(scaling(0.34), 1), stored(scaling(0.25), 2)])
    assert [row.label or row.unit for row in found.rows] == ["at once", "one after the other", "times"]
    assert found.rows[0].cells[1] is not None
    assert found.rows[0].cells[1].words == "26 % shorter (both simulated: a model without noise)"
    assert not found.mixed


def test_simulated_beside_measured_is_marked() -> None:
    runs = [stored(matmul(samples(60)), 1), stored(matmul(simulated=True, device="vgpu:0", median=65.0), 2)]
    found = compare(runs)
    assert found.mixed
    assert "#2 come from the model of a virtual GPU" in found.remarks[0]
    assert found.rows[0].cells[1] is not None
    assert found.rows[0].cells[1].words.endswith("(a simulation against a measurement)")


@pytest.mark.parametrize(
    ("runs", "line"),
    [
        ([stored(matmul(), 1)], "at least two"),
        ([stored(matmul(), 1), stored(matmul(), 1)], "chosen twice"),
        ([stored(matmul(), 1), stored(bandwidth(), 2)], "matmul and bandwidth measure different things"),
        ([stored(model(), 1), stored(model(target="mlp"), 2)], "resnet18 and mlp are different models"),
        ([stored(scaling(), 1), stored(scaling(iterations=10), 2)], "different amounts of work"),
        ([stored(matmul(), number) for number in range(MOST_RUNS + 1)], "too many"),
    ],
)
def test_what_is_not_compared_is_refused_in_one_line(runs: list[object], line: str) -> None:
    with pytest.raises(BadInput, match=line) as refused:
        compare(runs)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
    assert refusal(runs) == str(refused.value)  # type: ignore[arg-type]


def test_sweeps_of_other_shapes_have_nothing_in_common() -> None:
    other = msgspec.structs.replace(sweep(), cells=(msgspec.structs.replace(sweep().cells[0], m=333),))
    with pytest.raises(BadInput, match="no figure in common"):
        compare([stored(sweep(), 1), stored(other, 2)])


def test_a_speed_of_nothing_is_shown_and_not_divided_by() -> None:
    found = compare([stored(matmul(tflops=around(0.0)), 1), stored(matmul(), 2)])
    assert found.rows[0].cells[1] is not None
    assert found.rows[0].cells[1].difference is None


def test_conditions_that_differ_are_listed() -> None:
    runs = [
        stored(matmul(), 1),
        stored(
            matmul(dtype="float16"),
            2,
            driver_version="575.2",
            sm_clock_mhz=around(1200.0),
            temperature_c=around(61.0),
            power_cap_w=120.0,
            other_processes=("python (77)",),
            throttle_reasons=("power cap",),
            torch_version=None,
        ),
    ]
    rows = {row.label: row.values for row in condition_rows(runs)}
    assert rows == {
        "dtype": ("bfloat16", "float16"),
        "driver": ("570.1", "575.2"),
        "SM clock": ("1410 MHz (1396 to 1424)", "1200 MHz (1188 to 1212)"),
        "power cap": ("150 W", "120 W"),
        "throttled by": ("nothing", "power cap"),
        "other processes": ("none", "python (77)"),
    }, "a degree is no difference, and neither is a version that only one of them knows"
    assert compare(runs).differing == condition_rows(runs)
    assert condition_rows([stored(matmul(), 1), stored(matmul(), 2)]) == ()


def test_what_is_not_known_is_a_dash() -> None:
    rows = dict(
        all_conditions(stored(matmul(), 1, driver_version=None, sm_clock_mhz=None, other_processes=None).conditions)
    )
    assert rows["driver"] == rows["SM clock"] == rows["other processes"] == "—"
    assert rows["throttled by"] == "nothing"
    assert rows["began"] == "2027-01-15 08:01:00 UTC"


def test_remarks_name_runs_that_need_care() -> None:
    runs = [
        stored(matmul(samples(100, seed=1)), 1),
        stored(matmul(samples(102, seed=2), stopped=True, verified=False), 2),
    ]
    remarks = " ".join(compare(runs).remarks)
    assert "Ended before its time: #2" in remarks
    assert "The values were wrong: #2" in remarks
    assert "2 runs measured exactly the same on one device; their medians lie within 2.0 %" in remarks


def test_two_cards_of_one_number_are_no_reruns() -> None:
    """`cuda:0` of two machines are different cards, even with equal specifications."""
    runs = [
        stored(matmul(samples(100, seed=1)), 1),
        stored(matmul(samples(102, seed=2)), 2, host="other", uuid="GPU-2"),
    ]
    assert "exactly the same" not in " ".join(compare(runs).remarks)


def test_titles_say_what_was_measured() -> None:
    assert [
        title(result.spec)
        for result in (matmul(), sweep(), bandwidth(), scaling(), model(train=True, autocast="float16"))
    ] == [
        "matmul 4096×4096×4096 bfloat16 burst",
        "sweep float32",
        "bandwidth cpu, cuda:0",
        "scaling 1000 of 1000×1000×1000 float32 on 2",
        "model resnet18 training with sgd, batch 8 autocast float16",
    ]
    assert [figure.label for figure in figures(scaling())] == ["at once", "one after the other", ""]
    assert [figure.unit for figure in figures(model())] == ["samples/s", "TFLOP/s"]
