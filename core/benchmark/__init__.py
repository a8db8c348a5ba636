"""What a device really does: specifications, timing, matmul. Runs on the jobs thread (CPU) or on a bench thread per
accelerator."""
