"""A patch is applied to the user's file: atomically, the former file kept beside it, or not at all."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.doctor_models import PLAIN_TENSOR
from places import Place, place_of

from devexplorer.core.base import BadInput
from devexplorer.core.doctor.code.patches import apply, digest_of, patched
from devexplorer.core.files.records import OpenModel, RunModelCode
from devexplorer.core.models import samples
from devexplorer.core.records import ApplyPatch, Check, Checked, Finding

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def diff(old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/net.py", "b/net.py")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb\nc", "a\nb\nC"),
        ("a\n", "a\nb"),
        ("a", "a\nb\n"),
        ("-- a\n++ b\n@@ c\n", "++ b\n-- a\n@@ c\n"),
        ("".join(f"{n}\n" for n in range(40)), "".join(f"{n}\n" for n in range(40) if n not in (3, 30))),
        ("a\r\nb\r\n", "a\r\nB\r\n"),
        ("", "a\n"),
        ("é\n", "è\n"),
    ],
)
def test_a_patch_gives_the_text_that_it_was_made_from(old: str, new: str) -> None:
    assert patched(old, diff(old, new)) == new


def test_a_patch_for_another_text_is_refused() -> None:
    with pytest.raises(BadInput, match="line 2 is not what the patch expects"):
        patched("a\nx\nc\n", diff("a\nb\nc\n", "a\nB\nc\n"))


def test_the_former_file_is_kept_under_a_free_name_and_the_mode_stays(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("a\n")
    file.chmod(0o640)
    link = tmp_path / "link.py"
    link.symlink_to(file)
    (tmp_path / "net.py.orig").write_text("kept before")
    kept = apply(str(link), diff("a\n", "b\n"), digest_of(str(link)))
    assert kept.name == "net.py.orig.1"
    assert (file.read_text(), kept.read_text()) == ("b\n", "a\n")
    assert (tmp_path / "net.py.orig").read_text() == "kept before"
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.py", "net.py", "net.py.orig", "net.py.orig.1"]


def test_a_file_that_changed_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("a\n")
    digest = digest_of(str(file))
    file.write_text("a\n# mine\n")
    with pytest.raises(BadInput, match=r"the file net\.py has changed since the check"):
        apply(str(file), diff("a\n", "b\n"), digest)
    assert os.listdir(tmp_path) == ["net.py"]
    file.unlink()
    with pytest.raises(BadInput, match=r"the file net\.py cannot be changed: No such file"):
        apply(str(file), diff("a\n", "b\n"), digest)


def test_another_patch_of_the_same_check_joins_the_first(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    checked = "a = 1\nb = 2\nc = 3\n"
    file.write_text(checked)
    digest = digest_of(str(file))
    first, second = (diff(checked, checked.replace(*change)) for change in (("1", "one()"), ("2", "two()")))
    apply(str(file), first, digest)
    file.write_text("# mine\n" + file.read_text())
    apply(str(file), second, digest)
    assert file.read_text() == "# mine\na = one()\nb = two()\nc = 3\n"
    with pytest.raises(BadInput, match=r"the file net\.py has changed since the check"):
        apply(str(file), first, digest)
    with pytest.raises(BadInput, match=r"the file net\.py has changed since the check"):
        apply(str(file), diff(checked, checked.replace("3", "(")), digest)
    assert file.read_text() == "# mine\na = one()\nb = two()\nc = 3\n"


def test_a_sample_model_has_no_file_to_change() -> None:
    assert digest_of(str(Path(samples.__file__).with_name("blocks.py"))) == ""


def findings(place: Place, check: Check) -> tuple[Finding, ...]:
    (event,) = place.do(check).events
    assert isinstance(event, Checked)
    return event.diagnosis.problems


def test_check_apply_check_again(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(PLAIN_TENSOR)
    place.do(OpenModel(source=f"{file}:Net", folder=str(tmp_path), inputs="2x8"))
    check = Check(target="net", device="vgpu:0")
    (found,) = findings(place, check)
    assert found.patch is not None
    command = ApplyPatch(file=found.file, patch=found.patch, digest=found.digest, again=check)
    answer = place.answer(command)
    assert answer.title == "net.py was changed"
    assert "kept as net.py.orig" in answer.words
    assert 'self.register_buffer("scale", torch.ones(4))' in file.read_text()
    rebuild, offer = answer.offers
    assert (rebuild.label, rebuild.command) == ("Rebuild net from net.py", RunModelCode(target="net", again=True))
    assert (offer.label, offer.command) == ("Check net again", check)
    assert findings(place, check) == ()

    again = place.answer(command)
    assert again.failed
    assert again.title == "net.py was not changed"
    assert again.words == "The file net.py has changed since the check; check again for a patch that fits."
    assert again.offers == (offer,)


def test_rebuild_takes_what_was_found_on_changed_lines_and_claims_nothing_about_them(
    place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        PLAIN_TENSOR.replace(
            "self.scale = torch.ones(4)", "self.scale = torch.ones(4)\n        self.add = torch.ones(4)"
        ).replace("* self.scale", "* self.scale + self.add")
    )
    place.do(OpenModel(source=f"{file}:Net", folder=str(tmp_path), inputs="2x8"))
    found = findings(place, Check(target="net", device="vgpu:0"))
    assert [item.path for item in found] == ["scale", "add"]
    rebuild = RunModelCode(target="net", again=True)
    (event,) = place.do(rebuild).events
    assert isinstance(event, Checked)
    assert [item.path for item in event.diagnosis.problems] == ["scale", "add"], "nothing has changed since the check"
    assert event.diagnosis.unchecked == ()
    file.write_text(file.read_text().replace("self.scale = torch.ones(4)", "self.scale = 2.0"))
    (event,) = place.do(rebuild).events
    assert isinstance(event, Checked)
    assert [item.path for item in event.diagnosis.problems] == ["add"]
    assert [item.what for item in event.diagnosis.unchecked] == ["the changed code"]
    file.write_text(file.read_text().replace("torch.ones(4)", "0.0"))
    (event,) = place.do(rebuild).events
    assert isinstance(event, Checked)
    assert not event.diagnosis.problems
    assert not event.diagnosis.clean
    assert findings(place, Check(target="net", device="vgpu:0")) == ()
    (event,) = place.do(rebuild).events
    assert isinstance(event, Checked)
    assert (event.diagnosis.problems, event.diagnosis.unchecked) == ((), ())
