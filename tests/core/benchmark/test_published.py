"""Published throughput: found for every spelling of a card's name, never for another card or dtype."""

from __future__ import annotations

import pytest

from devexplorer.core.benchmark.published import best, published, verdict


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 271),
        ("nvidia a100-sxm4-80gb", 271),
        ("A100-SXM4-80GB", 271),
        ("NVIDIA A100 80GB PCIe", 285),
        ("NVIDIA A100-PCIE-80GB", 285),
        ("NVIDIA H100 80GB HBM3", 795),
        ("  NVIDIA   H200 ", 850),
        ("AMD Instinct MI300X", 676),
        ("MI300X", 676),
    ],
)
def test_a_card_is_found_however_its_driver_spells_it(name: str, peak: float) -> None:
    row = best(name, "bfloat16")
    assert row is not None
    assert row.peak_burst == peak


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("NVIDIA A100-SXM4-40GB", "bfloat16"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "bfloat16"),
        ("NVIDIA H100 PCIe", "bfloat16"),
        ("NVIDIA H200", "float16"),
        ("NVIDIA H200", "float8_e5m2"),
        ("Tesla T4", "bfloat16"),
        ("NVIDIA", "bfloat16"),
        ("", "bfloat16"),
    ],
)
def test_what_was_not_published_is_not_there(name: str, dtype: str) -> None:
    assert best(name, dtype) is None


def test_every_row_is_read() -> None:
    rows = published()
    assert len(rows) == 12
    fp8 = rows["NVIDIA B200", "float8_e4m3fn"]
    assert (fp8.peak_burst, fp8.sustained, fp8.datasheet, fp8.shape, fp8.method) == (3350, 2788, 4500, None, "v4")
    old = rows["NVIDIA H100 80GB HBM3", "bfloat16"]
    assert (old.sustained, old.shape, old.method) == (None, (2048, 2048, 13312), "old")


def test_the_verdict_compares_with_datasheet_and_the_best_published() -> None:
    h200, h100 = best("NVIDIA H200", "bfloat16"), best("NVIDIA H100 80GB HBM3", "bfloat16")
    assert verdict(833, 989, h200) == "84 % of datasheet, 98 % of the best published"
    assert verdict(740, 989, h200, "sustained") == "75 % of datasheet, 98 % of the best published sustained"
    assert verdict(740, 989, h100, "sustained") == "75 % of datasheet, 93 % of the best published burst"
    assert verdict(833, None, h200) == "98 % of the best published"
    assert verdict(60, 65, None) == "92 % of datasheet"
    assert verdict(0.05, None, None) == ""
