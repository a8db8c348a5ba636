"""Device cards, details, processes and the dialogs about devices. Main thread only."""
