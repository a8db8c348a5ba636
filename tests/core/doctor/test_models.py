"""Small models, each with one known defect that the doctor must find at its line, and suspicious ones without defects:
broken.txt and clean.txt of tests/doctor_models, sample models, configurations."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fakes.doctor import examined, patched
from fakes.doctor_models import Case, cases
from fakes.virtual import virtual

from devexplorer.core.doctor.examine import examine
from devexplorer.core.doctor.findings.rules import RULES
from devexplorer.core.models import samples
from devexplorer.core.models.samples import vision
from devexplorer.core.records import Diagnosis, DoctorRequest

__all__ = ["examined", "virtual"]

PITFALLS = {
    "list-pitfall": "unregistered-module",
    "data-pitfall": "cut-from-autograd",
    "noise-pitfall": "default-device",
}
LARGE = {"vgg11-bn": "1x3x32x32", "resnet18": "1x3x64x64"}
DEEPER = {"vgg16-bn", "resnet50"}
"""Of the same blocks."""
TINY = "hidden_size=16&num_hidden_layers=2&num_attention_heads=2&intermediate_size=24&vocab_size=60"
TOKENS = "pad_token_id=0&bos_token_id=1&eos_token_id=2"
CONFIGURATIONS = (
    f"bert?{TINY}",
    "albert?hidden_size=16&embedding_size=8&num_hidden_layers=2&num_attention_heads=2&intermediate_size=24&vocab_size=60",
    f"gpt2?n_layer=2&n_embd=16&n_head=2&vocab_size=60&{TOKENS}",
    f"gpt_neox?{TINY}&{TOKENS}",
    f"opt?hidden_size=16&num_hidden_layers=2&num_attention_heads=2&ffn_dim=24&vocab_size=60&word_embed_proj_dim=16&{TOKENS}",
    f"llama?{TINY}&num_key_value_heads=2&{TOKENS}",
    "t5?num_layers=2&d_model=16&d_kv=8&num_heads=2&d_ff=24&vocab_size=60",
    "bart?d_model=16&encoder_layers=1&decoder_layers=1&encoder_attention_heads=2&decoder_attention_heads=2&encoder_ffn_dim=24"
    "&decoder_ffn_dim=24&vocab_size=60&pad_token_id=0&bos_token_id=1&eos_token_id=2&decoder_start_token_id=2&forced_eos_token_id=2",
    "vit?num_hidden_layers=2&hidden_size=16&num_attention_heads=2&intermediate_size=24&image_size=32&patch_size=16",
)


pytestmark = pytest.mark.usefixtures("examined")  # forgets modules


def told(diagnosis: Diagnosis) -> str:
    """All of a diagnosis, for the message of a failed test."""
    lines = [
        f"{one.severity} {one.rule} {Path(one.file).name}:{one.line} {one.path!r}: {one.message} {one.fix}"
        for one in diagnosis.problems
    ]
    return "\n".join(
        [
            *lines,
            *(
                f"not checked: {one.what}: {one.reason} ({Path(one.file).name}:{one.line})"
                for one in diagnosis.unchecked
            ),
        ]
    )


@pytest.fixture
def diagnosis(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Diagnosis:
    """What the doctor says about the file."""
    if "needs" in case.directives:
        pytest.importorskip(case.directives["needs"])
    monkeypatch.setattr(logging.getLogger("accelerate"), "level", logging.ERROR)  # it warns of models on the CPU
    return diagnosed(case, case.text, tmp_path)


def diagnosed(case: Case, text: str, folder: Path) -> Diagnosis:
    (folder / case.file).write_text(text)
    return examine(case.request(folder))


@pytest.mark.parametrize("case", cases("broken"), ids=lambda case: case.name)
def test_the_defect_is_found_at_its_line_and_no_other_and_a_patch_mends_it(
    case: Case, diagnosis: Diagnosis, tmp_path: Path
) -> None:
    reported = (*diagnosis.problems, *(one for one in diagnosis.notes if RULES[one.rule].severity == "note"))
    here = {(one.rule, one.line) for one in reported if one.file == str(tmp_path / case.file)}
    assert case.defects <= here, told(diagnosis)
    also = set(case.directives.get("also", "").split())
    others = [one for one in diagnosis.problems if one.severity == "error" and (one.rule, one.line) not in case.defects]
    assert {one.rule for one in others} <= also, told(diagnosis)
    for one in diagnosis.problems:
        assert one.message.endswith("."), one.message
        assert one.fix.endswith("."), one.fix
        if one.patch is not None:
            after = diagnosed(case, patched(case.text, one.patch), tmp_path)
            assert one.rule not in {other.rule for other in after.problems}, f"{one.patch}\n{told(after)}"
            assert not after.unchecked, f"{one.patch}\n{told(after)}"


@pytest.mark.parametrize("case", cases("clean"), ids=lambda case: case.name)
def test_nothing_is_found_where_nothing_is_wrong(case: Case, diagnosis: Diagnosis) -> None:
    assert not diagnosis.problems, told(diagnosis)
    assert not diagnosis.unchecked, told(diagnosis)
    assert diagnosis.operations > 0


@pytest.mark.parametrize("name", sorted(samples.recipes().keys() - DEEPER))
def test_sample_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision, "VGG_FEATURES", 64)  # its layers are what counts
    diagnosis = examine(DoctorRequest(source=name, device="vgpu:0", train=True, inputs=LARGE.get(name, "")))
    found = {one.rule for one in diagnosis.problems}
    assert found == ({PITFALLS[name]} if name in PITFALLS else set()), told(diagnosis)
    assert diagnosis.clean == (name not in PITFALLS), told(diagnosis)


@pytest.mark.parametrize("source", CONFIGURATIONS, ids=lambda source: source.partition("?")[0])
def test_configurations_of_transformers(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    diagnosis = examine(DoctorRequest(source=f"transformers:{source}", device="vgpu:0", train=True))
    assert diagnosis.clean, told(diagnosis)


def test_every_rule_has_a_model() -> None:
    broken, clean = cases("broken"), cases("clean")
    assert {rule for case in broken for rule, _ in case.defects} == set(RULES)
    assert not any(case.defects for case in clean)
    assert len({case.name for case in (*broken, *clean)}) == len(broken) + len(clean)
