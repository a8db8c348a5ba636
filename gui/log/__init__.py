"""The tab Log."""
