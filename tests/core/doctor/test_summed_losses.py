"""Loops that sum losses with their history are found at their line by reading; loops close to them are silent."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from fakes.doctor import Examined, examined, marked
from fakes.virtual import virtual

__all__ = ["examined", "virtual"]

HEAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(8, 4)

    def forward(self, x):
        return self.f(x)

def train(net, batches, optimizer, criterion):
"""
FOUND = {
    "sum": """
total = 0.0
for x, y in batches:
    loss = criterion(net(x), y)
    loss.backward()
    optimizer.step()
    total += loss  # <-
print(total / len(batches))
""",
    "weighted": """
total = 0.0
for epoch in range(3):
    total = 0.0
    for x, y in batches:
        loss = criterion(net(x), y)
        loss.backward()
        total = total + loss * len(x)  # <-
""",
    "list": """
history = []
while True:
    loss = criterion(net(batches[0]))
    optimizer.zero_grad(); loss.backward()
    history.append(loss.cpu())  # <-
""",
    "last of an epoch": """
history = []
for epoch in range(3):
    for x in batches:
        loss = criterion(net(x))
        loss.backward()
    history += [loss]  # <-
""",
    "mean of replicas": """
total = 0.0
for x in batches:
    loss = criterion(net(x))
    loss = loss.mean()
    (loss / 4).backward()
    total += loss  # <-
""",
    "scaled": """
total = 0.0
for x in batches:
    loss = criterion(net(x))
    scaler.scale(loss).backward()
    total += loss  # <-
""",
    "by a library": """
losses = []
for x in batches:
    loss = criterion(net(x))
    accelerator.backward(loss)
    losses.append(loss)  # <-
""",
    "attribute": """
for x in batches:
    loss = criterion(net(x))
    loss.backward()
    if x.isfinite().all():
        net.running_loss += loss  # <-
""",
}
SILENT = {
    "number": "total += loss.item()",
    "wanted": "inner = criterion(net(x))\ninner.backward(create_graph=True)\ntotal += inner",
    "divisor": "n = len(x)\n(loss / n).backward()\ntotal += n",
    "detached": "total += loss.detach() * 2",
    "python": "total += float(loss)",
    "without autograd": "with torch.no_grad():\n    total += loss",
    "made a number first": "loss = loss.item()\ntotal += loss",
    "set back": "total += loss\nif x.sum() > 3:\n    print(total)\n    total = 0.0",
    "another quantity": "total += x.sum()",
    "defined, not run": "def later():\n    return history.append(loss)",
    "several losses of one step": "loss2 = criterion(net(x))\nloss2 += loss\nloss2.backward()",
}
LOOP = """
total, history = 0.0, []
for x in batches:
    loss = criterion(net(x))
    loss.backward()
{}
"""


@pytest.mark.parametrize("name", FOUND)
def test_a_loop_that_keeps_losses_is_found_at_its_line(examined: Examined, tmp_path: Path, name: str) -> None:
    found = examined(HEAD + indent(FOUND[name], "    "), factory="Net", inputs="4x8", virtual="2x Tesla T4")
    told = [(one.rule, one.severity, one.line) for one in found.problems]
    assert told == [("growing-graph", "warning", *marked(tmp_path / "net.py"))], found


@pytest.mark.parametrize("name", SILENT)
def test_a_loop_that_keeps_none_is_silent(examined: Examined, name: str) -> None:
    loop = LOOP.format(indent(SILENT[name], "    "))
    found = examined(HEAD + indent(loop, "    "), factory="Net", inputs="4x8", virtual="2x Tesla T4")
    assert found.clean, found


def test_a_sum_of_losses_that_backward_is_called_on_afterwards_is_what_its_author_wants(examined: Examined) -> None:
    loop = "total = 0.0\nfor x in batches:\n    total += criterion(net(x))\ntotal.backward()\n"
    assert examined(HEAD + indent(loop, "    "), factory="Net", inputs="4x8", virtual="2x Tesla T4").clean


def test_a_method_of_the_model_in_another_file_than_the_one_that_is_named(examined: Examined, tmp_path: Path) -> None:
    (tmp_path / "parts_of_it.py").write_text("from torch import nn\n" + HEAD + indent(FOUND["sum"], "    "))
    found = examined("from parts_of_it import Net\n", factory="Net", inputs="4x8", virtual="2x Tesla T4")
    assert [(one.rule, Path(one.file).name, one.line) for one in found.problems] == [
        ("growing-graph", "parts_of_it.py", *marked(tmp_path / "parts_of_it.py"))
    ]
