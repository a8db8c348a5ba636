"""The features beside the kernel, one line each: take out a line and its folders, and those that need it, and the rest
works without them. No thread.

Each is a folder of core, which holds a `feature.py` (`feature.py` beside this file says what that has) and perhaps a
`command_line.py`. The kernel imports none of them; what they add, it looks up by this list.
"""

FEATURES = (
    "parameters",
    "watch",
    "charts",
    "split",
    "sweep",
    "bandwidth",
    "scaling",
    "model_steps",
    "allreduce",
    "doctor",
    "planner",
    "experiments",
    "memory",
    "topology",
    "roofline",
    "machines",
    "fleet",
    "observe",
    "learn",
    "alerts",
    "recording",
    "history",
    "exporter",
    "files",
    "environments",
)
