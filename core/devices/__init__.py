"""What devices there are: each source has its module, `catalog` joins them by UUID. No Qt."""
