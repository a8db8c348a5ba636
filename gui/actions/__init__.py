"""What the user can do: the table of actions and the controller behind it. Main thread only."""

from devexplorer.gui.actions.context import OtherMachines, WindowContext, WindowWork, WorkKeeper
from devexplorer.gui.actions.controller import (
    TWO_T4,
    Controller,
    DropVerdict,
    HeldTensors,
    decode,
    encode,
    places_of,
    tensors_of,
    verdicts,
)
from devexplorer.gui.actions.tab import (
    ASK,
    FILE,
    MACHINE,
    MODEL,
    PARAMETERS,
    SELECTION_MENUS,
    SPLIT,
    ActionSpec,
    Page,
    TabSpec,
    fill_menu,
    follow_selection,
    lazy_page,
    make_qactions,
    refresh,
)
