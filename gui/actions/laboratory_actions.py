"""The laboratory's part of the action table: files, values, parameters, optimizer, splits, questions. Main thread; no
widgets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.gui.actions.laboratory import OPTIMIZERS, QUESTIONS, Laboratory
from devexplorer.gui.actions.table import ActionSpec

if TYPE_CHECKING:
    from devexplorer.gui.actions.controller import Controller
    from devexplorer.gui.shell.laboratory_dialogs import LaboratoryDialogs
    from devexplorer.gui.shell.main_window import MainWindow

FILE_ACTIONS = ("open_model", "load", "checkpoint", "save", "save_all")
PARAMETER_ACTIONS = ("values", "initialise", "edit", "freeze", "unfreeze", "tie", "untie", "clear_gradients")
MODEL_ACTIONS = ("train_mode", "eval_mode", "train_step", "move_optimizer")
SPLIT_ACTIONS = ("split", "insert_hops", "join")


def laboratory_table(
    lab: Laboratory, controller: Controller, dialogs: LaboratoryDialogs, window: MainWindow
) -> list[ActionSpec]:
    """Every action of the laboratory, in the order of menus and palette."""
    c, d, page = controller, dialogs, window.below.show_page

    def open_model() -> None:
        d.open_model()

    def load() -> None:
        d.load()

    return [
        ActionSpec("open_model", "Open a model…",
                   "A model of your own: a Python file, a module, torchvision, transformers", open_model,
                   c.why_no_engine, "Ctrl+Shift+O", "open"),
        ActionSpec("load", "Load tensors…", "Tensors of a safetensors or .pt file, onto any device", load,
                   c.why_no_engine),
        ActionSpec("checkpoint", "Load a checkpoint…", "Values of a file into the selected model", d.checkpoint,
                   lab.why_no_model),
        ActionSpec("save", "Save…", "Write the selected objects to a file", d.save, c.why_no_selection, "Ctrl+S"),
        ActionSpec("save_all", "Save the workspace…", "Write every object to one file", d.save_all,
                   window.why_nothing_there),
        ActionSpec("check", "Check", "Which line of the selected model would put a tensor on the wrong device",
                   window.check,
                   lab.why_no_check, "C", "check"),
        ActionSpec("values", "Values", "Histogram and statistics of the selected tensor", window.show_values,
                   lab.why_no_values, "V"),
        ActionSpec("initialise", "Initialise…", "Give a parameter, or all weights of a module, new values",
                   d.initialise,
                   lab.why_no_one_target, "I"),
        ActionSpec("freeze", "Freeze", "requires_grad off: no gradient, no step", partial(lab.set_requires_grad, False),
                   lab.why_no_target),
        ActionSpec("unfreeze", "Unfreeze", "requires_grad on", partial(lab.set_requires_grad, True), lab.why_no_target),
        ActionSpec("tie", "Tie", "Let the second selected parameter be the very same one as the first", lab.tie,
                   lab.why_no_tie),
        ActionSpec("untie", "Untie", "Give this name a parameter of its own again", lab.untie, lab.why_no_untie),
        ActionSpec("clear_gradients", "Clear gradients", "Set gradients to None and free their memory",
                   lab.clear_gradients,
                   lab.why_no_one_target),
        ActionSpec("train_mode", "Training mode", "model.train(): dropout and batch statistics on",
                   partial(lab.set_training, True),
                   lab.why_no_model),
        ActionSpec("eval_mode", "Evaluation mode", "model.eval()", partial(lab.set_training, False), lab.why_no_model),
        *(
            ActionSpec(f"optimizer_{kind}", words if kind == "none" else f"Optimizer: {words}",
                       "Over the model's trainable parameters",
                       partial(lab.make_optimizer, kind), lab.why_no_model)
            for kind, words in OPTIMIZERS.items()
        ),
        ActionSpec("train_step", "Training step", "Forward, backward, optimizer step", lab.train_step, lab.why_no_step),
        ActionSpec("move_optimizer", "Move optimizer state", "To where its parameters are", lab.move_optimizer,
                   lab.why_no_step),
        ActionSpec("split", "Split over devices…", "Plan which part of the model goes where", partial(page, "split"),
                   lab.why_no_model),
        ActionSpec("insert_hops", "Insert hops", "Each part fetches what it is given to its own device",
                   lab.insert_hops, lab.why_no_hops),
        ActionSpec("join", "Join on one device", "Take hops away and move everything to one device", lab.join,
                   lab.why_no_join),
        *(ActionSpec(f"ask_{question}", words, "Asked in Python, explained in words", partial(lab.ask, question),
                     lab.why_no_one_target)
          for question, words in QUESTIONS.items()),
        ActionSpec("experiments", "Experiments", "Replicate, time without synchronising, where the GPU overtakes",
                   partial(page, "experiments")),
        ActionSpec("learn", "Learn", "Short exercises that check themselves", partial(page, "learn"), key="L"),
        ActionSpec("session", "Session as Python", "Everything done so far, as a script or a notebook", partial(page,
                                                                                                                "session")),
    ]  # fmt: skip
