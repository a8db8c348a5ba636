"""What the placement doctor is asked and what it finds. Any thread."""

from __future__ import annotations

from devexplorer.core.base import Message
from devexplorer.core.records.base import BaseCommand, BaseEvent, Record

SEVERITIES = ("error", "warning", "note")
"""Of findings, the worst first."""


class Check(BaseCommand, tag="Check"):
    """Let the placement doctor check a model of the workspace; changes nothing. Answered with `Checked`."""

    target: str
    """Name of the model."""
    device: str
    """Where it is moved in the trial."""
    train: bool = False
    """Backward and a step of the optimizer, too."""
    inputs: str = ""
    """Shapes as `--input` takes them; empty: what the workspace knows, or a guess."""
    quiet: bool = False
    """Not what the user did: what is found is answered without words."""


class ApplyPatch(BaseCommand, tag="ApplyPatch"):
    """Apply the patch of a finding to its file; the former file is kept beside it."""

    file: str
    """Absolute."""
    patch: str
    """As in the finding."""
    digest: str
    """That of the finding: the file is left alone when it has changed since."""
    again: Check
    """The check that is offered afterwards."""

    @property
    def target(self) -> str:
        """The model that was checked."""
        return self.again.target


class DoctorRequest(Record):
    """What the doctor's separate process is asked."""

    source: str
    """A sample model's name, or a source as `core.isolation.model_source` reads it."""
    folder: str = ""
    """The folder that is importable; empty: the current one."""
    device: str = ""
    """Empty: the first GPU of PyTorch's, or else `vgpu:0`."""
    virtual: str = ""
    """Virtual GPUs that are made first, `[Nx ]PROFILE[, ...]`; empty: two Tesla T4 where no other GPU can be used."""
    visible: str | None = None
    """What CUDA_VISIBLE_DEVICES says about the virtual ones, where the user gave it."""
    train: bool = False
    training: bool = False
    """Without `train`: forward in training mode as well, also where the code of the model does not ask for its mode."""
    inputs: str = ""
    dtype: str | None = None
    """dtype that the model is moved to; None: its own."""
    seed: int = 0
    """Of the initial values."""
    fixes: bool = True
    """Whether fixes are tried, and offered as patches."""
    until: float = 0.0
    """The moment on `time.monotonic` when no further fix is tried; 0: any time."""

    @property
    def wants_virtual(self) -> bool:
        """Whether it is about virtual GPUs, whatever else there is."""
        return bool(self.virtual) or self.device.strip().lower().startswith("vgpu")


class CodeLines(Record):
    """A few lines of a file around one of them."""

    first: int
    """Number of the first of the lines, from 1."""
    lines: tuple[str, ...]


class Finding(Record):
    """One thing that the doctor found."""

    rule: str
    """Key of `core.doctor.findings.rules.RULES`: `unregistered-module`."""
    path: str
    """Module, parameter or attribute in the model, as in `named_modules`: `blocks.0.scale`; empty: the model itself."""
    file: str
    """Absolute; empty where no line of Python is to blame."""
    line: int
    """From 1; 0 where there is no file."""
    message: Message
    """One sentence: what is wrong."""
    fix: Message
    """One sentence: what would be right."""
    severity: str = "error"
    """`error` (fails or computes something else on the device), `warning` (slower, or not everywhere), `note` (worth
    knowing)."""
    count: int = 1
    """How often it happened in one forward (and backward)."""
    bytes: int | None = None
    """Memory or traffic that it costs each time."""
    seconds: float | None = None
    """Time that it costs each time, on the clock of the device."""
    simulated: bool = False
    """Whether `seconds` are those of a virtual GPU."""
    code: CodeLines | None = None
    """The lines around `line`."""
    patch: str | None = None
    """The fix as a unified diff, where it is mechanical."""
    digest: str = ""
    """SHA-256 of the file that the patch is for; empty where there is no patch, or DevExplorer's own file."""
    consequences: tuple[Finding, ...] = ()
    """What fails because of this: findings in their own right when this rule is ignored."""


class Unchecked(Record):
    """Something that the doctor could not look at, which is therefore neither right nor wrong."""

    what: str
    """`the forward`, `torch.cuda.Stream`, …"""
    reason: Message
    """One sentence."""
    file: str = ""
    line: int = 0


CHANGED = "the changed code"
"""What is unchecked where the model was rebuilt of other code after its check."""


class NoGradient(Record):
    """Parameters that a backward gave no gradient, and the one reason for all of them."""

    reason: str
    """`cut` (a line of the user's loses their history), `library` (a line of an installed package does), `copy` (a
    second copy of something that is trained, used without gradients: a target network), `updated` (forward writes their
    values itself), `frozen` (they require no gradient), `unused` (no operation had them as an operand), `output` (what
    was computed from them is not part of what forward returns), `unknown`."""
    parameters: tuple[str, ...]
    """Their paths, in the order of the model."""
    file: str = ""
    line: int = 0
    """The line that is to blame; 0 where none is."""
    code: str = ""
    """The code there: `.detach()`."""


class Uncompiled(Record):
    """Code that was examined as it is written, and that a compiler would have compiled."""

    what: str
    """`torch.compile`, `torch.jit.script`, …"""
    file: str = ""
    line: int = 0
    """The line that asks for it; 0 where that is not known."""


class Diagnosis(Record):
    """All that the doctor says about a model."""

    target: str
    device: str
    device_name: str = ""
    """`Tesla T4`."""
    simulated: bool = False
    """Whether the device is a virtual GPU."""
    train: bool = False
    modes: tuple[str, ...] = ()
    """Modes in which forward ran: `evaluation`, `training`; with `train` the backward was in training mode."""
    inputs: str = ""
    """Shapes that forward got."""
    problems: tuple[Finding, ...] = ()
    """Errors and warnings, the errors first, each kind in the order in which they happened."""
    notes: tuple[Finding, ...] = ()
    """What is worth knowing and no fault."""
    unchecked: tuple[Unchecked, ...] = ()
    no_gradient: tuple[NoGradient, ...] = ()
    """With `train`: every parameter that got no gradient, by its reason; empty where no backward was run."""
    uncompiled: tuple[Uncompiled, ...] = ()
    operations: int = 0
    """Operations that were watched."""

    @property
    def clean(self) -> bool:
        """Whether everything was checked and nothing is wrong."""
        return not self.problems and not self.unchecked

    @property
    def outdated(self) -> bool:
        """Whether the model was rebuilt of other code since: this is what that code shares with the former one."""
        return any(item.what == CHANGED for item in self.unchecked)


class Checked(BaseEvent, tag="Checked"):
    """What the doctor says about a model of the workspace."""

    target: str
    diagnosis: Diagnosis
