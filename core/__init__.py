"""Everything below the window: devices, telemetry, workspace, benchmarks, virtual GPUs, engine, command line. No Qt
anywhere."""
