"""How the devices are joined: picture and matrix. Main thread only."""
