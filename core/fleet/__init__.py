"""Every card of many machines: where they come from, what is known of them, which of them is slow."""
