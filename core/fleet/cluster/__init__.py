"""A Ray cluster as a fleet. Ray is imported by the process that is attached to the cluster, never by the window's."""
