"""Small models, each with one known defect that the doctor must find at its line, and suspicious ones without defects.

They are the files of `tests/doctor_models`. The first lines of each say what its user sees, and how to examine it: `#
input: 4x12`, `# train`, `# dtype: float16`, `# device: vgpu:1`, `# virtual: 2x Tesla T4`, `# needs: accelerate`. A line
with a defect ends in `# defect: RULE`; `# also: RULE` names one that the same line has besides.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from fakes.doctor import patched
from fakes.doctor_models import FOLDER, Case, files, read
from msgspec.structs import replace

from devexplorer.core.doctor.examine import examine
from devexplorer.core.doctor.findings.rules import RULES
from devexplorer.core.models import samples
from devexplorer.core.models.samples import vision
from devexplorer.core.records import Diagnosis, DoctorRequest
from devexplorer.core.virtual.backend import install

DIRECTIVES = {"input", "train", "dtype", "device", "virtual", "needs", "also", "unchecked"}
PITFALLS = {
    "list-pitfall": "unregistered-module",
    "data-pitfall": "cut-from-autograd",
    "noise-pitfall": "default-device",
}
LARGE = {"vgg11-bn": "1x3x32x32", "vgg16-bn": "1x3x32x32", "resnet18": "1x3x64x64", "resnet50": "1x3x64x64"}
TINY = "hidden_size=16&num_hidden_layers=2&num_attention_heads=2&intermediate_size=24&vocab_size=60"
TOKENS = "pad_token_id=0&bos_token_id=1&eos_token_id=2"
CONFIGURATIONS = (
    f"bert?{TINY}",
    f"bert?{TINY}&head=sequence-classification",
    f"roberta?{TINY}&{TOKENS}",
    f"electra?{TINY}&embedding_size=16",
    "distilbert?dim=16&n_layers=2&n_heads=2&hidden_dim=24&vocab_size=60",
    "albert?hidden_size=16&embedding_size=8&num_hidden_layers=2&num_attention_heads=2&intermediate_size=24&vocab_size=60",
    f"gpt2?n_layer=2&n_embd=16&n_head=2&vocab_size=60&{TOKENS}",
    f"gpt_neox?{TINY}&{TOKENS}",
    f"opt?hidden_size=16&num_hidden_layers=2&num_attention_heads=2&ffn_dim=24&vocab_size=60&word_embed_proj_dim=16&{TOKENS}",
    f"llama?{TINY}&num_key_value_heads=2&{TOKENS}",
    f"mistral?{TINY}&num_key_value_heads=2&{TOKENS}",
    f"qwen2?{TINY}&num_key_value_heads=2&{TOKENS}",
    f"phi?{TINY}&{TOKENS}",
    "t5?num_layers=2&d_model=16&d_kv=8&num_heads=2&d_ff=24&vocab_size=60",
    "bart?d_model=16&encoder_layers=1&decoder_layers=1&encoder_attention_heads=2&decoder_attention_heads=2&encoder_ffn_dim=24"
    "&decoder_ffn_dim=24&vocab_size=60&pad_token_id=0&bos_token_id=1&eos_token_id=2&decoder_start_token_id=2&forced_eos_token_id=2",
    "vit?num_hidden_layers=2&hidden_size=16&num_attention_heads=2&intermediate_size=24&image_size=32&patch_size=16",
)


def cases(kind: str) -> list[pytest.param]:
    return [pytest.param(read(file), id=file.stem) for file in files(kind)]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Neither virtual GPUs nor the modules that were examined."""
    install().reset()
    known = set(sys.modules)
    yield
    install().reset()
    for name in set(sys.modules) - known:
        if FOLDER in Path(getattr(sys.modules[name], "__file__", None) or "").parents:
            del sys.modules[name]


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
def quiet_accelerate() -> Iterator[None]:
    """It warns when it places a model on the CPU."""
    logger = logging.getLogger("accelerate")
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


@pytest.fixture
def diagnosis(case: Case, quiet_accelerate: None) -> Diagnosis:
    """What the doctor says about the file; found out once."""
    if "needs" in case.directives:
        pytest.importorskip(case.directives["needs"])
    return examined(case.file)


@cache
def examined(file: Path) -> Diagnosis:
    return examine(read(file).request)


@pytest.mark.parametrize("case", cases("broken"))
def test_the_defect_is_found_at_its_line_and_no_other(case: Case, diagnosis: Diagnosis) -> None:
    reported = (*diagnosis.problems, *(one for one in diagnosis.notes if RULES[one.rule].severity == "note"))
    here = {(one.rule, one.line) for one in reported if one.file == str(case.file)}
    assert case.defects <= here, told(diagnosis)
    also = set(case.directives.get("also", "").split())
    others = [one for one in diagnosis.problems if one.severity == "error" and (one.rule, one.line) not in case.defects]
    assert {one.rule for one in others} <= also, told(diagnosis)
    for one in diagnosis.problems:
        assert one.message.endswith("."), one.message
        assert one.fix.endswith("."), one.fix


@pytest.mark.parametrize("case", cases("broken"))
def test_a_patch_mends_what_it_is_for(case: Case, diagnosis: Diagnosis, tmp_path: Path) -> None:
    for finding in diagnosis.problems:
        if finding.patch is not None:
            (tmp_path / case.file.name).write_text(patched(case.file.read_text(), finding.patch))
            after = examine(replace(case.request, folder=str(tmp_path)))
            assert finding.rule not in {one.rule for one in after.problems}, f"{finding.patch}\n{told(after)}"
            assert not after.unchecked, f"{finding.patch}\n{told(after)}"


@pytest.mark.parametrize("case", cases("clean"))
def test_nothing_is_found_where_nothing_is_wrong(case: Case, diagnosis: Diagnosis) -> None:
    assert not diagnosis.problems, told(diagnosis)
    assert [one.what for one in diagnosis.unchecked] == [what for what in [case.directives.get("unchecked")] if what], (
        told(diagnosis)
    )
    assert diagnosis.operations > 0


@pytest.mark.parametrize("name", sorted(samples.recipes()))
def test_sample_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision, "VGG_FEATURES", 64)  # its layers are what counts
    diagnosis = examine(
        DoctorRequest(source=name, device="vgpu:0", virtual="Tesla T4", train=True, inputs=LARGE.get(name, ""))
    )
    found = {one.rule for one in diagnosis.problems}
    assert found == ({PITFALLS[name]} if name in PITFALLS else set()), told(diagnosis)
    assert diagnosis.clean == (name not in PITFALLS), told(diagnosis)


@pytest.mark.parametrize("source", CONFIGURATIONS, ids=lambda source: source.partition("?")[0])
def test_configurations_of_transformers(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    diagnosis = examine(DoctorRequest(source=f"transformers:{source}", device="vgpu:0", virtual="Tesla T4", train=True))
    assert diagnosis.clean, told(diagnosis)


def test_the_corpus_has_each_rule_twice_and_knows_its_directives() -> None:
    broken, clean = ([param.values[0] for param in cases(kind)] for kind in ("broken", "clean"))
    counted = Counter(rule for case in broken for rule in {rule for rule, _ in case.defects})
    assert set(counted) == set(RULES)
    assert min(counted.values()) >= 2, counted
    assert len(broken) >= 45
    assert len(clean) + len(samples.recipes()) + len(CONFIGURATIONS) >= 60
    for case in (*broken, *clean):
        assert set(case.directives) <= DIRECTIVES, case.file
        assert bool(case.defects) == (case in broken), case.file
