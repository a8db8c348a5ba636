"""What every part of the program may use and that uses none of them: errors, formats, dtypes, whole files, progress. No
torch, no Qt."""

from devexplorer.core.base.dtypes import (
    AUTOCAST,
    ITEM_BYTES,
    item_bytes,
    parse_dtype,
    parse_input_shapes,
    parse_model_dtype,
    product_dtype,
)
from devexplorer.core.base.errors import (
    BadInput,
    Cancelled,
    DevExplorerError,
    DoesNotFit,
    LinkError,
    Message,
    MoveFailed,
    RollbackFailed,
    Unavailable,
    first_line,
    out_of_host_memory,
    typed_line,
)
from devexplorer.core.base.event_handlers import EventHandlers, handles
from devexplorer.core.base.files import open_regular, replacing
from devexplorer.core.base.findings import Findings
from devexplorer.core.base.formats import (
    MISSING,
    Clock,
    bytes_by_device_text,
    bytes_text,
    count_text,
    elapsed_text,
    flops_cell_text,
    flops_text,
    joined,
    left_text,
    list_text,
    moment_text,
    number_text,
    objects_text,
    parse_bytes,
    parse_count,
    parse_seconds,
    printable,
    range_text,
    rate_texts,
    running_text,
    seconds_text,
    sentence,
    shape_text,
)
from devexplorer.core.base.module_command import FIRST_PYTHON, USERS_PATH, module_command, module_prefix, without_cards
from devexplorer.core.base.optimizers import OPTIMIZERS
from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor, Report, no_report
from devexplorer.core.base.python_names import (
    MOVE_LAZILY_IMPORT,
    checked_name,
    expression,
    object_name,
    quoted,
    suggestion,
    variable,
    writes_in_place,
)
