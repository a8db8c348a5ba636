"""The cost model against published products: the origin of its factors, its errors, and that the docs state them."""

from __future__ import annotations

import statistics

import pytest
from benchmarks import cost_model

from devexplorer.core.benchmark.published import published
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.virtual.device import cost

ROWS = list(published().values())


def test_the_docs_hold_the_table_of_the_code():
    text = cost_model.DOCS.read_text(encoding="utf-8")
    written = text.partition(cost_model.BEGIN)[2].partition(cost_model.END)[0]
    assert written == cost_model.table(), "run: python tests/benchmarks/cost_model.py --write"
    factors = cost_model.fit([row for row in ROWS if (row.gpu, row.dtype) in cost_model.FITTED])
    eight_bit = factors.pop(cost_model.EIGHT_BIT)
    for chip, share in factors.items():
        assert f"{share:.3f} ({chip})" in text
    assert f"| 8-bit products, relative to that | {eight_bit:.3f} |" in text
    assert f"| the same, other architectures | {cost.OTHER_COMPUTE_EFFICIENCY:.3f} |" in text


def test_the_factors_are_those_of_the_named_rows_and_of_no_other():
    factors = cost_model.fit([row for row in ROWS if (row.gpu, row.dtype) in cost_model.FITTED])
    assert factors.pop(cost_model.EIGHT_BIT) == pytest.approx(cost.EIGHT_BIT_EFFICIENCY)
    assert factors == pytest.approx(cost.COMPUTE_EFFICIENCY)
    assert statistics.median(factors[chip] for chip in ("8.0", "9.0", "10.0")) == pytest.approx(
        cost.OTHER_COMPUTE_EFFICIENCY
    )


def test_every_published_row_is_checked_without_itself():
    checks = cost_model.checks()
    assert [check.row for check in checks] == ROWS
    for check in checks:
        changed = [one for one in ROWS if one != check.row]
        if check.fitted:
            assert check.tflops == pytest.approx(cost_model.predict(check.row, cost_model.fit(changed)))
            assert abs(check.error) > 1e-3, "a row that is predicted exactly was fitted on"
        else:
            assert check.tflops == pytest.approx(cost_model.predict(check.row))


def test_rows_that_gave_no_factor_are_within_8_percent_and_the_others_without_themselves_too():
    for check in cost_model.checks():
        assert abs(check.error) < 0.08, check


def test_unseen_architectures_of_nvidia_are_within_10_percent_and_amds_is_not():
    for check in cost_model.checks():
        assert (abs(check.unseen_error) < 0.10) == check.row.gpu.startswith("NVIDIA"), check


def test_the_model_gives_fitted_rows_back():
    for row in ROWS:
        if (row.gpu, row.dtype) in cost_model.FITTED:
            assert cost_model.predict(row) == pytest.approx(row.peak_burst, rel=1e-6)


@pytest.mark.usefixtures("no_virtual_gpus_left")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.gpu} {row.dtype}")
def test_a_benchmark_on_the_virtual_card_measures_what_the_table_says(row, document):
    shape = "x".join(map(str, row.shape or cost_model.NO_SHAPE))
    argv = [
        "--virtual",
        row.gpu,
        "--device",
        "vgpu:0",
        "--dtype",
        row.dtype,
        "--size",
        shape,
        "--mode",
        "burst",
        "--iterations",
        "2",
    ]
    (run,) = document("bench", "matmul", *argv)["runs"]
    assert run["tflops"]["median"] == pytest.approx(cost_model.predict(row), rel=1e-3)
    assert (run["published_tflops"], run["datasheet_tflops"]) == (row.peak_burst, row.datasheet)


def test_published_datasheet_rates_are_those_of_the_profiles():
    for row in ROWS:
        assert load_profiles()[row.gpu].tflops[row.dtype] == row.datasheet


def test_a_chip_without_published_products_and_8_bit_products():
    assert cost.compute_efficiency("7.5", "float16") == cost.OTHER_COMPUTE_EFFICIENCY
    for dtype in ("int8", "float8_e4m3fn", "float8_e5m2"):
        assert cost.compute_efficiency("8.9", dtype) == pytest.approx(
            cost.OTHER_COMPUTE_EFFICIENCY * cost.EIGHT_BIT_EFFICIENCY
        )
    assert cost.compute_efficiency("9.0", "tf32") == cost.COMPUTE_EFFICIENCY["9.0"]
