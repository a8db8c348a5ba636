"""How the devices are connected: picture and matrix. Main thread only."""
