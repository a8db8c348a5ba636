"""Made-up diagnoses of the doctor for the tests of the window."""

from __future__ import annotations

from devexplorer.core.records import Checked, CodeLines, Diagnosis, Finding, Unchecked
from devexplorer.core.session.state import State

FILE = "/home/ada/nets/net.py"
CODE = CodeLines(
    first=3,
    lines=(
        "class Net(nn.Module):",
        "    def __init__(self) -> None:",
        "        super().__init__()",
        "        self.scale = torch.ones(8)",
        "        self.hidden = nn.Linear(8, 8)",
        "",
        "    def forward(self, x):",
    ),
)
PATCH = """--- a/net.py
+++ b/net.py
@@ -6,1 +6,1 @@
-        self.scale = torch.ones(8)
+        self.register_buffer("scale", torch.ones(8))
"""


def finding(path: str = "", severity: str = "error", **more: object) -> Finding:
    """A tensor that is not registered, unless `more` says something else."""
    fields: dict[str, object] = {
        "rule": "unregistered-tensor",
        "path": path,
        "file": FILE,
        "line": 6,
        "message": "self.scale is a plain attribute: it stayed on cpu.",
        "fix": "Make it a buffer.",
        "severity": severity,
        "code": CODE,
    }
    return Finding(**(fields | more))  # type: ignore[arg-type]


def hidden_sync(path: str = "out") -> Finding:
    """A warning with its cost."""
    return finding(
        path,
        "warning",
        rule="hidden-sync",
        line=9,
        message=".item() waits until vgpu:0 has done all its work.",
        fix="Keep the value as a tensor.",
        count=3,
        bytes=4,
        seconds=84e-6,
        simulated=True,
    )


def note(path: str = "") -> Finding:
    """A note."""
    return finding(
        path,
        "note",
        rule="unsaved-buffer",
        file="",
        line=0,
        message="mask is not saved.",
        fix="Let it persist.",
        code=None,
    )


def diagnosis(
    *problems: Finding,
    notes: tuple[Finding, ...] = (),
    unchecked: tuple[Unchecked, ...] = (),
    target: str = "mlp",
    **more: object,
) -> Diagnosis:
    """A diagnosis of a model on a virtual GPU."""
    fields: dict[str, object] = {
        "device": "vgpu:0",
        "device_name": "Tesla T4",
        "simulated": True,
        "operations": 41,
    } | more
    return Diagnosis(target=target, problems=problems, notes=notes, unchecked=unchecked, **fields)  # type: ignore[arg-type]


def some(target: str = "mlp") -> Diagnosis:
    """An error about an attribute of a layer, one about the model, a warning, a note, and something not checked."""
    return diagnosis(
        finding("hidden.scale", patch=PATCH),
        finding("", rule="mixed-devices", line=9, message="linear got operands on two devices.", fix="Move the model."),
        hidden_sync(),
        notes=(note(),),
        unchecked=(Unchecked(what="torch.cuda.Stream", reason="A virtual GPU has no streams.", file=FILE, line=12),),
        target=target,
    )


def tell(state: State, found: Diagnosis) -> None:
    """Deliver the diagnosis."""
    state.apply(Checked(target=found.target, diagnosis=found))
