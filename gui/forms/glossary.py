"""What the terms in this window mean (F1). Main thread only."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QFormLayout, QWidget

from devexplorer.gui.widgets import Role, ScrollArea, label, vbox

WORDS = (
    ("device", "A place where tensors live: cpu, cuda:1, mps, xpu:0, vgpu:0."),
    ("CUDA ordinal", "What torch counts: the 1 in cuda:1. CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER change it."),
    ("NVML index", "What nvidia-smi counts. It need not be the CUDA ordinal: the card shows both."),
    ("UUID", "What identifies a card, whatever its numbers are."),
    (
        "virtual GPU",
        (
            "A simulated card: the values are real, computed on the CPU; memory is counted; time is modelled from the"
            " datasheet."
        ),
    ),
    ("profile", "The datasheet of the card that a virtual GPU imitates."),
    ("calibration", "A card's own factors of the cost model, measured on it in ten seconds. Fit can plan with them."),
    ("workspace", "The named tensors and models that are alive in the engine."),
    ("placement", "Which parameter, buffer and gradient is on which device, in which dtype."),
    (
        "move",
        (
            "The name then means the result. x.to(device) makes a new tensor, and the old one is freed when nothing"
            " else holds it; model.to(device) moves the model in place."
        ),
    ),
    ("copy to", "Makes a second object; the original stays. That is y = x.to(device)."),
    ("allocated", "Bytes in live tensors of the engine."),
    (
        "reserved",
        "Bytes that torch's caching allocator has taken from the device. Reserved minus allocated is the cache.",
    ),
    (
        "context",
        (
            "What CUDA and its libraries take as soon as a process touches a card. It is given back only when the"
            " engine ends."
        ),
    ),
    ("other processes", "Memory that other processes use on the card."),
    ("sample", "One reading of one device."),
    ("timeline", "The history of samples that the plots show. A gap is a time for which nothing is known."),
    ("benchmark run", "Matrix products, copies or steps of a model, measured over and over on a device's own clock."),
    ("TFLOP/s", "10¹² floating-point operations per second; a product of M×K and K×N takes 2·M·N·K of them."),
    (
        "engine",
        "The process that holds torch. When it dies the window stays, starts another one and rebuilds the workspace.",
    ),
)


class GlossaryDialog(QDialog):
    """A list to scroll through; `word`: the term that it is opened for."""

    def __init__(self, parent: QWidget, word: str = "") -> None:
        super().__init__(parent)
        self.setWindowTitle("Glossary")
        self.resize(640, 560)
        form = QFormLayout(
            horizontalSpacing=16,
            verticalSpacing=8,
            labelAlignment=Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop,
        )
        form.setContentsMargins(16, 16, 16, 16)
        self.meanings = {term: label(meaning, words="soft", wrap=True) for term, meaning in WORDS}
        for term, meaning in self.meanings.items():
            form.addRow(label(term, Role.STRONG, align=Qt.AlignmentFlag.AlignTop), meaning)
        self._word = word
        self.area = ScrollArea(form, "Terms and their meanings")
        vbox(self.area, parent=self)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._word:
            self.area.ensureWidgetVisible(self.meanings[self._word], 0, self.height() // 3)
