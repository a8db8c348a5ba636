"""The roofline of a device. Main thread only."""
