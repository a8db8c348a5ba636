"""Live plots over one shared time axis. Main thread only."""
