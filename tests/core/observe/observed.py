"""Runs scripts as they are run when they are observed, one after the other: `observed.py OUTPUT [--virtual SPEC]
SCRIPT…`. Writes a line of JSON with the report of each, and what it raised."""

import io
import json
import runpy
import sys
import traceback
from contextlib import redirect_stdout

import torch

from devexplorer.core.observe import observer
from devexplorer.core.observe.closing import report_lines
from devexplorer.core.observe.records import ObserveSettings
from devexplorer.core.records.base import plain


def observed(script):
    observation = observer.start(ObserveSettings(script=script))
    raised, printed = "", io.StringIO()
    try:
        with redirect_stdout(printed):
            runpy.run_path(script, run_name="__main__")
    except Exception:
        raised = traceback.format_exc()
    report = observation.finish()
    return {"report": plain(report), "lines": report_lines(report), "raised": raised, "printed": printed.getvalue()}


def main(output, *arguments):
    scripts = list(arguments)
    if scripts[0] == "--virtual":
        import devexplorer
        from devexplorer.core.virtual.cuda.emulation import CudaEmulation

        observer.start(ObserveSettings()).finish()  # its hooks come before the emulation
        devexplorer.add_virtual_gpus(scripts[1])
        CudaEmulation(torch.accelerator.device_count(), spoken=True).__enter__()
        scripts = scripts[2:]
    with open(output, "w") as file:
        for script in scripts:
            json.dump(observed(script), file)
            file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
