"""Users' code: every error in it gives one line and has no other effect."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest
import torch
from places import Place, place_of
from torch import nn

from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.files.records import OpenModel
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.models import loading, trial
from devexplorer.core.models.builders import SourceRecipe
from devexplorer.core.models.trial import tried

pytestmark = pytest.mark.usefixtures("warm_processes")

LINEAR = "from torch import nn\ndef make(): return nn.Linear(4, 2)\n"


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes the user's file `net.py`; its modules are unloaded afterwards."""
    known = set(sys.modules)

    def net(text: str) -> Path:
        path = tmp_path / "net.py"
        path.write_text(text)
        return path

    yield net
    for name in set(sys.modules) - known:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(str(place).startswith(str(tmp_path)) for place in places):
            del sys.modules[name]


def said(place: Place, path: Path, factory: str = "make") -> str:
    """The error for a model that cannot be opened; everything else stays unchanged."""
    before = [place.snapshot(name) for name in place.workspace.names]
    answer = place.answer(OpenModel(source=f"net:{factory}", folder=str(path.parent)))
    assert answer.failed
    assert answer.title == "No model was opened"
    assert "\n" not in answer.words
    assert [place.snapshot(name) for name in place.workspace.names] == before
    assert place.workspace.history.state().title is None
    return answer.words


# --- what goes wrong on the way


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "import no_such\n",
            "'net' could not be imported: ModuleNotFoundError: No module named 'no_such' (net.py, line 1)",
        ),
        ("x = 1\ndef f(:\n", "SyntaxError: invalid syntax (net.py, line 2)"),
        ("\n\nraise ValueError('first\\nsecond')\n", "'net' could not be imported: ValueError: first (net.py, line 3)"),
        ("import sys\nsys.exit(0)\n", "'net' could not be imported: SystemExit: 0 (net.py, line 2)"),
        ("import os\nos._exit(0)\n", "'net:make' ended its process itself with exit code 0"),
        ("def made(): pass\n", "has no class or function 'make'; did you mean made?"),
        ("make = 3\n", "that is a int and cannot be called"),
        (
            "import torch\ndef inner():\n    raise KeyError('width')\ndef make():\n    return inner()\n",
            "'net:make()' failed: KeyError: 'width' (net.py, line 3)",
        ),
        ("def make():\n    import json\n    json.loads('{')\n", "failed: JSONDecodeError"),
        ("def make():\n    raise GeneratorExit\n", "failed: GeneratorExit (net.py, line 2)"),
        ("def make(width): return width\n", "missing 1 required positional argument: 'width'"),
        ("import os\ndef make(): os._exit(0)\n", "'net:make' ended its process itself with exit code 0"),
        (
            "import os, signal\ndef make(): os.kill(os.getpid(), signal.SIGSEGV)\n",
            "ended its process by signal SIGSEGV",
        ),
        ("def make(): return 3\n", "'net:make()' gave a int; a torch.nn.Module is required"),
        ("from torch import nn\ndef make(): return nn.Linear\n", "gave the class Linear, not a model"),
        (
            "from torch import nn\nmake = nn.Linear(2, 2)\n",
            "is already a model; name the class or function that creates it",
        ),
    ],
)
def test_what_does_not_work_is_said_in_one_line_with_the_users_own_line(
    place: Place, write: Write, text: str, words: str
) -> None:
    assert words in said(place, write(text))


def test_what_ends_only_in_the_engine_does_not_end_it(write: Write) -> None:
    path = write(
        f"import os, sys\nfrom torch import nn\nif os.getpid() == {os.getpid()}:\n    HERE = True\n"
        "def leave(): return os._exit(0) if 'HERE' in globals() else nn.Linear(2, 2)\n"
        "def go(): return sys.exit(0) if 'HERE' in globals() else nn.Linear(2, 2)\n"
    )
    with LocalEngine() as local:
        for factory, words in (
            ("leave", r"it called os._exit\(0\).*net.py, line 5"),
            ("go", r"SystemExit: 0 .net.py, line 6"),
        ):
            with pytest.raises(BadInput, match=words):
                local.demand(OpenModel(source=f"net:{factory}", folder=str(path.parent)))
            assert local.engine.workspace.names == ()


def test_a_fork_that_returns_twice_makes_one_model(place: Place, write: Write, tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = write(
        "import os\nfrom torch import nn\n"
        "def make():\n"
        "    os.fork()\n"
        f"    with open({str(made)!r}, 'a') as file: file.write(f'{{os.getpid()}} ')\n"
        "    return nn.Linear(2, 2)\n"
    )
    place.do(OpenModel(source="net:make", folder=str(path.parent)))
    assert place.workspace.names == ("make",)
    assert len(set(made.read_text().split())) == 4, "twice each in the trial and here, and no child went on"


# --- global settings


def test_what_is_changed_for_the_whole_process_is_taken_back_and_told(
    place: Place, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program"])
    path = write(
        "import os, random, sys, warnings, numpy, torch\n"
        "from torch import nn\n"
        "def make():\n"
        "    torch.set_default_dtype(torch.float64)\n"
        "    torch.set_default_device('cpu:0')\n"
        "    torch.set_grad_enabled(False)\n"
        "    torch.set_num_threads(torch.get_num_threads() + 1)\n"
        "    torch.manual_seed(99); random.seed(99); numpy.random.seed(99)\n"
        "    os.environ['OF_THE_MODEL'] = '1'; os.chdir('/'); sys.argv = ['other']; sys.path.append('/nowhere')\n"
        "    warnings.simplefilter('ignore'); sys.stdout = None\n"
        "    return nn.Linear(4, 2)\n"
    )
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    filters, streams = list(warnings.filters), (sys.stdout, sys.stderr)
    before = (
        torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_num_threads(),
        os.getcwd(),
        dict(os.environ), list(sys.path), list(sys.argv),
    )  # fmt: skip
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tobytes()
    answer = place.do(OpenModel(source="net:make", folder=str(path.parent))).answer
    assert before == (
        torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_num_threads(),
        os.getcwd(),
        dict(os.environ), list(sys.path), list(sys.argv),
    )  # fmt: skip
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), numpy.random.get_state()[1].tobytes()) == states[1:]
    assert (list(warnings.filters), (sys.stdout, sys.stderr)) == (filters, streams)
    assert os._exit.__name__ == "_exit"
    for words in (
        "the default dtype (torch.float64 instead of torch.float32)", "the default device",
        "gradient mode (False instead of True)",
        "the number of CPU threads", "the current folder", "environment variables", "sys.argv", "that was reverted",
    ):  # fmt: skip
        assert words in answer.words, words
    assert "torch.set_default_dtype(torch.float32)" in answer.code
    assert {row.dtype for row in place.snapshot("make").rows if row.kind == "parameter"} == {"float64"}


def test_it_is_taken_back_also_when_the_factory_fails(write: Write) -> None:
    path = write("import torch\ndef make():\n    torch.set_default_dtype(torch.float64)\n    raise ValueError('no')\n")
    with pytest.raises(BadInput, match="ValueError: no"):
        SourceRecipe(parse("net:make"), str(path.parent)).make()
    assert torch.get_default_dtype() == torch.float32


LAYER = "from torch import nn\nclass Layer(nn.Linear):\n    def __init__(self): super().__init__(3, 3)\n"
RELATIVE, ABSOLUTE, SIBLING = (
    f"from {where} import Layer\nclass Net(Layer): pass\n" for where in (".layers", "pack.layers", "layers")
)
LAYOUTS = {
    "a package": ({"pack/__init__.py": "", "pack/layers.py": LAYER, "pack/net.py": RELATIVE}, "pack.net"),
    "a package within one": (
        {"pack/__init__.py": "", "pack/layers.py": LAYER, "pack/deep/__init__.py": "",
         "pack/deep/net.py": RELATIVE.replace(".layers", "..layers")}, "pack.deep.net"),
    "its own name": ({"pack/__init__.py": "", "pack/layers.py": LAYER, "pack/net.py": ABSOLUTE}, "pack.net"),
    "what the package offers": ({"pack/layers.py": LAYER, "pack/__init__.py": RELATIVE}, "pack"),
    "src": ({"src/pack/__init__.py": "", "src/pack/layers.py": LAYER, "src/pack/net.py": ABSOLUTE}, "pack.net"),
    "without __init__": ({"pack/layers.py": LAYER, "pack/net.py": RELATIVE}, "pack.net"),
    "without __init__, its own name": ({"pack/layers.py": LAYER, "pack/net.py": ABSOLUTE}, "pack.net"),
    "dashes": ({"a-b/__init__.py": "", "a-b/layers.py": LAYER, "a-b/my-net.py": RELATIVE}, "a-b.my-net"),
    "a dot": ({"pack/__init__.py": "", "pack/layers.py": LAYER, "pack/net.v2.py": RELATIVE}, "pack.net_v2_file"),
    "a folder of its name": (
        {"pack/__init__.py": "", "pack/layers.py": LAYER, "pack/net/__init__.py": "", "pack/net.py": RELATIVE},
        "pack.net_file"),
    "the name of a module of Python": ({"types/__init__.py": "", "types/layers.py": LAYER, "types/net.py": RELATIVE},
                                       "types_of_{folder}.net"),
    "the name of a package that is loaded": ({"numpy/__init__.py": "", "numpy/layers.py": LAYER,
                                              "numpy/net.py": RELATIVE}, "numpy_of_{folder}.net"),
    "a file with such a name": ({"layers.py": LAYER, "queue.py": SIBLING}, "queue_of_{folder}"),
    "a file of a package with such a name": (
        {"pack/__init__.py": "", "pack/layers.py": LAYER, "pack/queue.py": RELATIVE}, "pack.queue"),
    "a script beside its modules": (
        {"layers.py": LAYER, "train.py": SIBLING + "if __name__ == '__main__':\n    raise SystemExit\n"}, "train"),
    "a script that lies in a package": (
        {"pack/__init__.py": "1 / 0", "pack/layers.py": LAYER, "pack/train.py": SIBLING}, "train"),
    "a module that does both": (
        {"pack/__init__.py": "", "pack/layers.py": LAYER, "pack/net.py": f"from .layers import nn\n{SIBLING}"},
        "pack.net"),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("write")
def test_a_file_opens_as_its_author_imports_it(tmp_path: Path, layout: str) -> None:
    files, module = LAYOUTS[layout]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    paths, last = list(sys.path), list(files)[-1]
    made = SourceRecipe(parse(f"{last}:Net"), str(tmp_path)).make()
    assert type(made.model).__module__ == module.format(folder=tmp_path.name)
    assert sys.path == paths
    assert not made.changes.words
    assert not list(tmp_path.rglob("__pycache__"))


CONFIG = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    width: int = 4\n"
NET_OF_CONFIG = "class Net(nn.Linear):\n    def __init__(self, config: Config): super().__init__(config.width, 2)\n"


@pytest.mark.parametrize("in_package", [True, False])
@pytest.mark.usefixtures("write")
def test_a_configuration_with_defaults_alone_is_made_for_the_model_and_in_the_script(
    tmp_path: Path, in_package: bool
) -> None:
    (tmp_path / "pack").mkdir()
    if in_package:
        (tmp_path / "pack" / "__init__.py").write_text("")
        (tmp_path / "pack" / "config.py").write_text(CONFIG)
        text = f"from __future__ import annotations\nfrom torch import nn\nfrom .config import Config\n{NET_OF_CONFIG}"
    else:
        text = f"from torch import nn\n{CONFIG}{NET_OF_CONFIG}"
    (tmp_path / "pack" / "net.py").write_text(text)
    recipe = SourceRecipe(parse("pack/net.py:Net"), str(tmp_path))
    script = recipe.make().code.text("net", 0, recipe.make().changes)
    ran = subprocess.run([sys.executable, "-c", f"{script}\nprint(net)"], capture_output=True, text=True)
    assert ran.stdout.startswith("Net(in_features=4"), ran.stderr


@pytest.mark.usefixtures("write")
def test_a_module_below_src_opens_from_the_folder_of_the_project(tmp_path: Path) -> None:
    for name, text in LAYOUTS["src"][0].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert type(SourceRecipe(parse("pack.net:Net"), str(tmp_path)).make().model).__name__ == "Net"


RETURNS = """
from torch import nn
class Net(nn.Linear):
    def __init__(self, width, device, *, deep=False): super().__init__(width, 2, device=device)
def both(): return Net(3, "cpu"), 3
def named(): return {"step": 1, "model": Net(3, "cpu")}
def nothing(): return None
class Trainer:
    def __init__(self): self.step, self.net = 1, Net(3, "cpu")
class Either(nn.Module):
    def __init__(self, width=None, weight=None, deep=False):
        super().__init__()
        if width is None and weight is None: raise ValueError("one of them")
def inner(): return Net(4)
"""


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("Net", "give options as in 'net.py:Net?width=…&device=cpu', or write"),
        ("Net?width=4", "as in 'net.py:Net?width=4&device=cpu', or write"),
        ("Net?width=4&device=cpu&depth=2", "; it takes width, device, deep"),
        ("both", "gave a tuple (Net, int); write a function that returns its model alone, both(…)[0], and"),
        ("named", "gave a dict (int, Net); write a function that returns its model alone, named(…)['model'], and"),
        ("Trainer", "gave a Trainer; write a function that returns the model in it, Trainer(…).net, and name that"),
        ("Either", "one of them (net.py, line 13); give options as in 'net.py:Either?width=…&weight=…', or write"),
        ("nothing", "gave a NoneType; a torch.nn.Module is required"),
    ],
)
def test_a_factory_that_cannot_be_called_so_is_told_how(write: Write, factory: str, words: str) -> None:
    folder = str(write(RETURNS).parent)
    with pytest.raises(BadInput, match=re.escape(words)):
        SourceRecipe(parse(f"net.py:{factory}"), folder).make()


def test_a_mistake_within_a_factory_gets_no_hint_at_options(write: Write) -> None:
    with pytest.raises(BadInput) as raised:
        SourceRecipe(parse("net.py:inner"), str(write(RETURNS).parent)).make()
    assert "options" not in str(raised.value)


ON_CARDS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 2), nn.Linear(2, 2)
        self.b.cuda(1)
        if not torch.cuda.is_available():
            raise ValueError("no card")

def make():
    return Net()

def mapped():
    from accelerate import dispatch_model
    net = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
    return dispatch_model(net, {"0": 0, "1": 1})

def split():
    return nn.Sequential(nn.Linear(4, 2).cuda(), nn.Linear(2, 2).cuda(1))
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize(
    ("factory", "bytes_by_device"),
    [
        ("make", {"cpu": 64}),  # brought to the device that was chosen
        ("split", {"vgpu:0": 40, "vgpu:1": 24}),
        ("mapped", {"vgpu:0": 40, "vgpu:1": 24}),
    ],
)
def test_code_that_asks_for_cuda_opens_on_virtual_gpus_and_what_it_has_split_stays_so(
    place: Place, write: Write, factory: str, bytes_by_device: dict[str, int]
) -> None:
    if factory == "mapped":
        pytest.importorskip("accelerate")
    folder = str(write(ON_CARDS).parent)
    name = place.do(OpenModel(source=f"net:{factory}", folder=folder)).answer.subject
    assert place.snapshot(name).bytes_by_device == bytes_by_device
    assert not torch.cuda.is_available()


# --- again, and beside others


def test_an_edited_file_is_imported_again_and_an_untouched_one_is_not_tried_again(
    place: Place, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(f"from beside import WIDTH\n{LINEAR.replace('(4, 2)', '(4, WIDTH)')}")
    (path.parent / "beside.py").write_text("WIDTH = 3\n")
    tries: list[str] = []
    monkeypatch.setattr(trial, "tried", lambda source, *rest: tries.append(source.text) or tried(source, *rest))
    command = OpenModel(source="net:make", folder=str(path.parent))
    names = [place.do(command).answer.subject, place.do(command).answer.subject]
    assert names == ["make", "make2"]
    assert tries == ["net:make"]
    (path.parent / "beside.py").write_text("WIDTH = 5\n")
    place.do(command)
    assert tries == ["net:make"] * 2
    third = place.workspace.get("make3")
    assert isinstance(third, nn.Linear)
    assert third.out_features == 5
    assert not list(path.parent.rglob("__pycache__")), "nothing is left in the user's folder"


def test_a_module_of_the_same_name_in_another_folder_is_another_module(write: Write, tmp_path: Path) -> None:
    write(LINEAR)
    other = tmp_path / "other"
    other.mkdir()
    (other / "net.py").write_text(LINEAR.replace("4, 2", "7, 2"))
    features = []
    for folder in (tmp_path, other, tmp_path):
        model = SourceRecipe(parse("net:make"), str(folder)).make().model
        assert isinstance(model, nn.Linear)
        features.append(model.in_features)
    assert features == [4, 7, 4]


def test_a_factory_that_gives_the_same_model_again_is_refused(place: Place, write: Write) -> None:
    path = write("from torch import nn\nONE = nn.Linear(2, 2)\ndef make(): return ONE\n")
    command = OpenModel(source="net:make", folder=str(path.parent))
    place.do(command)
    assert "gave the very model that is already here as 'make'" in place.answer(command).words
    assert place.workspace.names == ("make",)


def test_everything_that_is_wrong_is_said_together_before_any_code_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "tried", lambda *_: pytest.fail("code ran"))
    with pytest.raises(BadInput) as refused:
        dispatch(
            place.workspace,
            OpenModel(source="net", folder="/no/such", name="1", device="vgpu:9", dtype="int8", inputs="4by4"),
        )
    assert len(refused.value.findings) == 6


def test_a_model_that_does_not_fit_is_refused_before_it_is_allocated(place: Place, write: Write) -> None:
    path = write(LINEAR.replace("nn.Linear(4, 2)", "nn.Linear(400_000, 400_000)"))
    with pytest.raises(DoesNotFit) as refused:
        dispatch(place.workspace, OpenModel(source="net:make", folder=str(path.parent), device="vgpu:0"))
    assert refused.value.needed_bytes > 590 << 30


def test_what_lies_on_meta_has_no_values_to_move(place: Place, write: Write) -> None:
    words = said(place, write(LINEAR.replace("4, 2", "4, 2, device='meta'")))
    assert "has no values" in words


def test_a_configuration_that_does_not_fit_is_refused_before_it_is_allocated(place: Place) -> None:
    with pytest.raises(DoesNotFit) as refused:
        dispatch(
            place.workspace, OpenModel(source="transformers:gpt2?n_layer=1&n_embd=120000&n_head=1", device="vgpu:0")
        )
    assert refused.value.needed_bytes > 500 << 30


def test_the_end_of_the_process_that_waits_for_it_ends_a_trial(write: Write, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    path = write(
        f"import os, time\nopen('{told}.new', 'w').write(str(os.getpid()))\nos.rename('{told}.new',"
        f" '{told}')\ntime.sleep(600)\n"
    )
    code = (
        "from devexplorer.core.isolation.model_source import parse\nfrom devexplorer.core.models.trial import tried\n"
        f"tried(parse('net:make'), {str(path.parent)!r})"
    )
    waiting = subprocess.Popen([sys.executable, "-c", code])
    end = time.monotonic() + 60
    while not told.exists() and time.monotonic() < end:
        threading.Event().wait(0.02)
    trial_process = psutil.Process(int(told.read_text()))
    waiting.kill()
    waiting.wait()
    _, alive = psutil.wait_procs([trial_process], timeout=10)
    assert not alive


def test_the_python_of_two_models_of_one_file_imports_it_once(tmp_path: Path) -> None:
    file = tmp_path / "twice.py"
    file.write_text(
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self, n=2): super().__init__(n, n)\n"
    )
    scope: dict[str, Any] = {"sys": sys, "importlib": importlib}
    try:
        for name in ("first", "second"):
            code = SourceRecipe(parse(f"{file}:Net"), "").code()
            exec("\n".join((*code.imports, *code.lines, f"{name} = {code.expression}")), scope)
        assert type(scope["first"]) is type(scope["second"]), "torch.save(first) names its class"
    finally:
        sys.modules.pop("twice_file", None)
        sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]


def test_a_factory_that_is_not_there_is_answered_with_what_the_file_defines(tmp_path: Path) -> None:
    (tmp_path / "offers.py").write_text(
        "import os, sys, torch\nfrom torch import nn\nclass Wide(nn.Linear): ...\ndef make(): ...\n"
    )
    try:
        with pytest.raises(BadInput, match=r"there are Wide, make$"):
            loading.factory_of(parse(f"{tmp_path / 'offers.py'}:Qqqq"), "")
    finally:
        sys.modules.pop("offers", None)


def test_a_tensor_in_an_attribute_is_said_to_belong_in_a_buffer(place: Place, write: Write) -> None:
    path = write(
        "import torch\nfrom torch import nn\nclass Net(nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(2, 2)\n        self.scale = torch.ones(2)\n"
    )
    words = place.answer(OpenModel(source="net:Net", folder=str(path.parent))).words
    assert "1 tensor in a plain list or attribute" in words
    assert "tensors in a buffer" in words
