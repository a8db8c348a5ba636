"""Models: sample models and the user's own, how they are made, walked, copied and run. Jobs thread, or a process of its
own."""

from devexplorer.core.models.builders import (
    Builder,
    ModelOrigin,
    NamedBuilder,
    SourceRecipe,
    StoredModule,
    adopt,
    builder_of,
    every_slot,
)
from devexplorer.core.models.class_source import (
    ClassSource,
    Function,
    Stamp,
    assigned,
    assignments,
    expressions_at,
    file_of,
    functions_of,
    is_switch,
    last_name,
    own_attribute,
    reached_methods,
    self_name,
    stamp_of,
    tree_of,
)
from devexplorer.core.models.copies import clone_model, deep_copy
from devexplorer.core.models.extras import (
    CrossingHooks,
    Extras,
    FetchHook,
    fetches_inputs,
    held_by,
    kind_of,
    make_optimizer,
    state_tensors,
)
from devexplorer.core.models.guard import default_device, kept, settings_kept
from devexplorer.core.models.inputs import (
    CHEAP_BYTES,
    UnknownInputs,
    floating_dtype,
    parse_inputs,
    sampled,
    specs_for,
    tensors_for,
)
from devexplorer.core.models.loading import error_text
from devexplorer.core.models.run import (
    Explain,
    Operand,
    RunFailed,
    failed_backward,
    first_tensor,
    let_go,
    operand,
    tensors_in,
    total,
)
from devexplorer.core.models.unmovable import (
    QUANTISED,
    Dispatched,
    cast_of,
    crossings,
    dispatched,
    dtype_name,
    loses,
    model_dtype,
    refuse_dispatched,
    refuse_not_dense,
    refuse_special,
    refuse_value,
    torch_dtype,
)
from devexplorer.core.models.walk import (
    CONTAINER_ITEMS,
    ORDINARY,
    Held,
    Holdings,
    RegisteredIds,
    bytes_of,
    device_id,
    endless,
    every_tensor,
    gradient_of,
    is_irregular,
    is_lazy,
    is_uninitialised,
    leaves_below,
    named_modules,
    no_collections,
    parameters_and_buffers,
    size_of,
    split_by_hand,
    storage_address,
    storages_of,
    type_name,
    unregistered,
)
