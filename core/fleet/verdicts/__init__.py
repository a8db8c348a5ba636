"""Which card is slow, and why: statistics without threads or machines."""
