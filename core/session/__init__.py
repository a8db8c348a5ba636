"""What the window talks to: the engine process, the state, jobs, settings, the session as Python. Main thread; no Qt,
no torch."""

from devexplorer.core.session.journal import (
    NOTHING_UNDER_WAY,
    FinishedCommand,
    Job,
    Progress,
    Run,
    UnderWay,
    device_of,
    objects_of,
    steps_of,
    verb_of,
)
from devexplorer.core.session.machine import Machine
from devexplorer.core.session.row_table import CodedColumn, Ints, Mask, RowTable, RowTables, Shape
from devexplorer.core.session.settings import KnownMachine, Place, Settings, SettingsFile
from devexplorer.core.session.state import LOG_LINES, Change, Device, Marker, State
