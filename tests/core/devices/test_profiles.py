"""Profiles of virtual GPUs: the CSV and the names that users type."""

import subprocess
import sys
from pathlib import Path

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import MAX_DEVICES, load_profiles, parse_virtual


def names(spec):
    return [profile.name for profile in parse_virtual(spec)]


def test_a_profile_has_the_figures_of_its_row_in_base_units():
    t4 = load_profiles()["Tesla T4"]
    assert (t4.memory_bytes, t4.usable_bytes) == (15360 * 2**20, 15102 * 2**20)
    assert (t4.compute_capability, t4.sm_count, t4.memory_gb_s, t4.host_gb_s) == ("7.5", 40, 320.0, 15.75)
    assert dict(t4.tflops) == {"float32": 8.1, "float16": 65.0, "int8": 130.0}


def test_fp8_counts_for_both_float8_dtypes_and_float64_is_not_claimed():
    h200 = load_profiles()["NVIDIA H200"]
    assert h200.tflops["float8_e4m3fn"] == h200.tflops["float8_e5m2"] == 1979.0
    assert all("float64" not in profile.tflops for profile in load_profiles().values())


def test_the_driver_leaves_most_of_the_memory_and_never_more_than_there_is():
    for profile in load_profiles().values():
        assert 0.95 * profile.memory_bytes < profile.usable_bytes <= profile.memory_bytes, profile.name


def test_unverified_and_computed_columns_are_kept():
    laptop = load_profiles()["GeForce RTX 3070 Laptop GPU"]
    assert laptop.unverified == {"memory_mib", "link", "tdp_w"}
    assert "tf32" in laptop.computed
    assert not load_profiles()["Tesla T4"].unverified


def test_every_profile_is_found_by_its_own_name():
    for name in load_profiles():
        assert names(name) == [name]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("2x Tesla T4", ["Tesla T4"] * 2),
        ("2xT4", ["Tesla T4"] * 2),
        ("2 × tesla t4", ["Tesla T4"] * 2),
        ("Tesla T4, NVIDIA A10", ["Tesla T4", "NVIDIA A10"]),
        ("1x L4, 2x 4090", ["NVIDIA L4", "GeForce RTX 4090", "GeForce RTX 4090"]),
        ("nvidia h200", ["NVIDIA H200"]),
        ("v100 32gb", ["Tesla V100-SXM2-32GB"]),
        ("Laptop", ["GeForce RTX 3070 Laptop GPU"]),
        ("rtx 3070", ["GeForce RTX 3070"]),
        ("RTX 4080, rtx 4080 super", ["GeForce RTX 4080", "GeForce RTX 4080 SUPER"]),
        ("H100 SXM, h100 sxm5", ["NVIDIA H100 80GB HBM3"] * 2),
        ("H200 SXM, V100 SXM 32GB", ["NVIDIA H200", "Tesla V100-SXM2-32GB"]),
        ("A100 SXM 80GB", ["NVIDIA A100-SXM4-80GB"]),
    ],
)
def test_names_may_be_shortened_as_long_as_they_mean_one_card(spec, expected):
    assert names(spec) == expected


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "no virtual GPU is named"),
        ("2x", "no virtual GPU is named"),
        ("0x T4", "write a whole number from 1 on"),
        ("-1x T4", "write a whole number from 1 on"),
        ("1.5x T4", "write a whole number from 1 on"),
        ("65x T4", f"more than {MAX_DEVICES}"),
        ("99999999999x T4", f"more than {MAX_DEVICES}"),
        (f"{'9' * 5000}x T4", f"more than {MAX_DEVICES}"),
        ("40x T4, 40x A10", f"more than {MAX_DEVICES}"),
        ("A100", "could be 'NVIDIA A100-PCIE-40GB'"),
        ("Tesla T5", "did you mean 'Tesla T4'"),
        ("A1000", "did you mean 'NVIDIA A10"),
        ("toaster", "there are Tesla T4, "),
        ("toaster", f"lists all {len(load_profiles())}"),
        ("L40", "there is no profile 'L40'; did you mean 'NVIDIA L40S'"),
        ("MI300", "there is no profile 'MI300'; did you mean 'AMD Instinct MI300X'"),
        ("A100 SXM", "could be 'NVIDIA A100-SXM4-40GB' or 'NVIDIA A100-SXM4-80GB'"),
        ("nvidia", "write more of the name"),
    ],
)
def test_bad_input_is_one_line_that_says_what_would_be_right(spec, words):
    with pytest.raises(BadInput) as caught:
        parse_virtual(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_everything_that_is_wrong_is_reported_at_once():
    with pytest.raises(BadInput) as caught:
        parse_virtual("0x T4, toaster, 2x T4")
    assert len(caught.value.findings) == 2


def test_the_window_can_use_profiles_without_torch():
    code = (
        "import sys, devexplorer.core.devices.profiles as p, devexplorer.core.virtual.device.machine; "
        "p.parse_virtual('T4'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_page_about_virtual_gpus_lists_every_profile():
    page = (Path(__file__).parents[3] / "docs" / "virtual_gpus.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in page for name in load_profiles())
