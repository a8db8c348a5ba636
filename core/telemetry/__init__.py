"""Readings over time: the sampler thread, the mailbox to the main thread, the timelines. No Qt, no torch."""
