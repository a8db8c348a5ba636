"""Widgets and looks that belong to no feature: theme, tables, code views. Main thread only.

Dialogs are imported from their modules, when they are first shown.
"""

from devexplorer.gui.widgets.after_paint import PAINT_MS, after_paint
from devexplorer.gui.widgets.banner import Banner
from devexplorer.gui.widgets.facts import FactsTable
from devexplorer.gui.widgets.figures import (
    ExportingWindow,
    Figures,
    MenuLine,
    ask_export,
    number_texts,
    offer_menu,
    show_tables,
)
from devexplorer.gui.widgets.form_fields import Choice, FormRow, MenuEdit, TypedChoice, labelled
from devexplorer.gui.widgets.icons import Sign, app_icon, icon, pixmap
from devexplorer.gui.widgets.keyboard import TypingKeys, chain, digit_key, put_in_order, reading_order
from devexplorer.gui.widgets.layouts import (
    CENTRE,
    LEFT,
    RIGHT,
    UNLIMITED_PX,
    ButtonMenu,
    ScrollArea,
    ScrollColumn,
    check_box,
    grid,
    hbox,
    holder,
    lay_out,
    line_edit,
    menu_button,
    popup_menu,
    push_button,
    splitter,
    stack,
    tab_widget,
    thin_line,
    vbox,
)
from devexplorer.gui.widgets.memory_bar import HEIGHT_PX, MemoryBar, paint_part, part_brushes, segments
from devexplorer.gui.widgets.on_screen import OnScreen, first_size, fitted
from devexplorer.gui.widgets.panel import (
    EDGE_PX,
    HEADER_PX,
    NOT_READY,
    ElidedButton,
    ElidedLabel,
    EmptyState,
    Panel,
    ShrinkingLabel,
    TextBlock,
    can_add_virtual,
    code_text,
    give_room,
    is_only_shown,
    label,
    set_look,
    show_text,
    spin_box,
    why_fixed,
    why_not_live,
)
from devexplorer.gui.widgets.persistent_splitter import KeptSplitter
from devexplorer.gui.widgets.picture import (
    CHIP_PX,
    Look,
    Picture,
    chip_width,
    draw_text,
    paint_chip,
    paint_chips,
    paint_device,
    paint_focus,
    paint_progress,
    text_width,
)
from devexplorer.gui.widgets.screen_reader import announce, tell_chosen
from devexplorer.gui.widgets.source_view import CodeView, Colours
from devexplorer.gui.widgets.table import (
    PAD_PX,
    ROW_PX,
    Cell,
    Column,
    CutAtTheStart,
    Index,
    Padded,
    RowsModel,
    RowsTable,
    TableRow,
    keep_gutter,
    numbers,
    press_in_place,
)
from devexplorer.gui.widgets.theme import (
    CPU,
    Colour,
    Role,
    Tone,
    colour_of,
    current_theme,
    device_colour,
    device_dash,
    device_pen,
    font,
    severity_tone,
    theme_changed,
)
