"""Injects defects of every kind at random places of clean models, and counts how many the doctor finds at the exact
line.

python tests/soak/doctor_injection.py [--seed 0] [--rounds 20] [--kinds detach,item] [--show]

A round is one valid injection of each kind, into a clean model of tests/doctor_models/clean.txt (by rewriting its
source), or into a sample model or a configuration of transformers (by a hook on a random module of it). An injection is
invalid if the model then fails on the CPU, the line is not reached, or, for cuts, no parameter loses its gradient; it
is retried elsewhere. Everything runs in this process."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from fakes.defects import DEFECTS
from fakes.injection import Outcome, Subject, corpus, looked_for, said, wrapped_transformers, wrapped_zoo

TRIES = 12
"""Places to try for one valid injection."""


def subjects(random_: random.Random) -> list[Subject]:
    from devexplorer.core.models import samples

    small = [
        name
        for name in sorted(samples.recipes())
        if not name.startswith(("vgg", "resnet")) and not name.endswith("-pitfall")
    ]
    found = [*corpus(), *wrapped_zoo(small * 2, random_)]
    try:
        found += [*wrapped_transformers(random_), *wrapped_transformers(random_)]
    except ImportError:
        print("transformers is not installed: without it")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--show", action="store_true", help="print what is missed, and what else is said")
    given = parser.parse_args()
    random_, began = random.Random(given.seed), time.monotonic()
    models = subjects(random_)
    kinds = given.kinds.split(",") if given.kinds else list(DEFECTS)
    outcomes: list[Outcome] = []
    invalid: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        false = clean = 0
        for model in models:
            diagnosis = said(model.source, model.factory, model.request, folder)
            clean += 1
            false += len(diagnosis.problems)
            if diagnosis.problems and given.show:
                print("FALSE", model.name, [(one.rule, one.line, one.message) for one in diagnosis.problems])
        for _ in range(given.rounds):
            for kind in kinds:
                for _ in range(TRIES):
                    outcome = looked_for(random_.choice(models), kind, DEFECTS[kind], folder, random_)
                    if not outcome.state.startswith("invalid"):
                        outcomes.append(outcome)
                        break
                    invalid[outcome.state] += 1
    found = Counter(one.kind for one in outcomes if one.state == "found")
    tried = Counter(one.kind for one in outcomes)
    for kind in kinds:
        print(f"{kind:32} {found[kind]:4} of {tried[kind]:4}")
    others = [(one.subject, one.kind, other) for one in outcomes for other in one.others]
    if given.show:
        for one in outcomes:
            if one.state == "missed":
                print(
                    "MISSED",
                    one.kind,
                    one.subject,
                    [(other.rule, other.line, other.message[:100]) for other in one.said],
                )
        for subject, kind, other in others:
            print("BESIDE", kind, subject, other.rule, other.line, other.message[:140])
    share = 100 * found.total() / max(tried.total(), 1)
    print(
        f"seed {given.seed}: {found.total()} of {tried.total()} of {len(kinds)} kinds found at their line"
        f" ({share:.1f} %)"
    )
    print(f"findings beside the line: {len(others)}; in {clean} models without a defect: {false}")
    print(f"tried and not valid: {dict(invalid)}; {time.monotonic() - began:.0f} s")
    return 0 if share >= 95 and not false else 1


if __name__ == "__main__":
    sys.exit(main())
