"""What the commands share on a terminal: options, output, waiting, stopping. Main thread; no torch, no Qt."""
