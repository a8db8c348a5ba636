"""Runs scripts that run out of memory, one after the other in this process, each on a virtual Tesla T4 with 1 GiB, and
prints where the report of each is: `run_out_of_memory.py FOLDER SCRIPT ...`."""

import dataclasses
import gc
import json
import runpy
import sys

import torch

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.observe import out_of_memory
from devexplorer.core.virtual.backend import install
from devexplorer.core.virtual.cuda.emulation import CudaEmulation

SMALL = 1 << 30


def main(folder: str, scripts: list[str]) -> None:
    torch.set_num_threads(1)
    watch = out_of_memory.OutOfMemoryWatch()
    watch.folder = folder
    watch.install()
    machine = install()
    (card,) = parse_virtual("Tesla T4")
    for script in scripts:
        gc.collect()
        machine.reset()
        machine.add([dataclasses.replace(card, memory_bytes=SMALL, usable_bytes=SMALL)])
        machine.gpus[0].memory.note_lines(True)
        sys.argv = [script]
        watch.last, watch._quiet_until, watch._step_mark = None, 0.0, 0
        ended = "nothing was raised"
        gc.disable()  # what goes on has to free its memory by itself
        with CudaEmulation(1, spoken=True):
            try:
                runpy.run_path(script, run_name="__main__")
            except torch.OutOfMemoryError as error:
                ended = str(error)
        gc.enable()
        written = None if watch.last is None else watch.last[0]
        print(json.dumps([script, ended, written, out_of_memory.problems]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
