"""Runs scripts that run out of memory, one after the other in this process, each on a Tesla T4 with 1 GiB, and prints
where the report of each is: `run_out_of_memory.py vgpu|cuda FOLDER SCRIPT ...`. On virtual GPUs, or on the first CUDA
card, of which PyTorch then gets as much."""

import gc
import json
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from devexplorer.core.observe import out_of_memory, when_full

SMALL, CONTEXT = 1 << 30, 400 << 20


def virtual() -> Callable[[], AbstractContextManager[None]]:
    import dataclasses

    from devexplorer.core.devices.profiles import parse_virtual
    from devexplorer.core.virtual.backend import install
    from devexplorer.core.virtual.cuda.emulation import CudaEmulation

    machine = install()
    (card,) = parse_virtual("Tesla T4")

    @contextmanager
    def fresh() -> Iterator[None]:
        machine.reset()
        machine.add([dataclasses.replace(card, memory_bytes=SMALL, usable_bytes=SMALL)])
        machine.gpus[0].memory.note_lines(True)
        with CudaEmulation(1, spoken=True):
            yield

    return fresh


def cuda() -> Callable[[], AbstractContextManager[None]]:
    total = torch.cuda.mem_get_info(0)[1]
    torch.cuda.set_per_process_memory_fraction((SMALL - CONTEXT) / total, 0)

    @contextmanager
    def fresh() -> Iterator[None]:
        torch.cuda.empty_cache()
        yield

    return fresh


def main(kind: str, folder: str, scripts: list[str]) -> None:
    torch.set_num_threads(1)
    out_of_memory.COLLECT_SECONDS = out_of_memory.SEARCH_SECONDS = 60.0  # however busy the machine is
    watch = when_full.OutOfMemoryWatch()
    watch.folder = folder
    watch.install()
    fresh = {"vgpu": virtual, "cuda": cuda}[kind]()
    for script in scripts:
        gc.collect()
        sys.argv = [script]
        watch.last, watch._quiet_until, watch._step_mark = None, 0.0, 0
        ended = "nothing was raised"
        with fresh():
            gc.disable()  # what goes on has to free its memory by itself
            try:
                runpy.run_path(script, run_name="__main__")
            except torch.OutOfMemoryError as error:
                ended = str(error)
            gc.enable()
        written = None if watch.last is None else watch.last[0]
        print(json.dumps([script, ended, written, when_full.problems]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
