"""Messages of a replay: what the recording is, and that it cannot be changed. Pure functions, any thread."""

from __future__ import annotations

from devexplorer.core.base.formats import bytes_text, sentence
from devexplorer.core.base.times import elapsed_text, moment_text
from devexplorer.core.recording.reader import Recording
from devexplorer.core.records.messages import Answer, Fact
from devexplorer.core.session.state import State
from devexplorer.core.telemetry.alert_rules import Rule

REFUSED = "a recording cannot be changed; choose “Back to live” to return to this machine"


def refusal(time_unix_s: float) -> Answer:
    """The answer to a command."""
    return Answer(title="A recording cannot be changed", words=sentence(REFUSED), failed=True, time_unix_s=time_unix_s)


def initial_state(recording: Recording, rules: tuple[Rule, ...]) -> State:
    """The state before any of the recording is read; its answer describes the recording."""
    state = State()
    state.alerts.set_rules(rules)
    header = recording.header
    state.recording = f"recording of {header.host}"
    words = [
        f"Recorded on {header.host}. A recording cannot be changed; choose “Back to live” to return to this machine."
    ]
    state.answer = Answer(
        title=f"Recording of {header.host}", words=" ".join([*words, *recording.findings]), facts=_facts(recording)
    )
    return state


def _facts(recording: Recording) -> tuple[Fact, ...]:
    header, begin_s = recording.header, recording.first_unix_s
    devices = [f"{info.id} {info.name}{', simulated' if info.simulated else ''}" for info in recording.first_devices]
    return (
        Fact("file", recording.path.name),
        Fact("recorded on", header.host),
        Fact("from", moment_text(begin_s)),
        Fact("to", moment_text(recording.last_unix_s)),
        Fact("length", elapsed_text(recording.last_ms / 1000)),
        Fact("recorded by", f"DevExplorer {header.devexplorer}".rstrip()),
        Fact("size", bytes_text(recording.size_bytes)),
        *(Fact("device", device) for device in devices),
    )
