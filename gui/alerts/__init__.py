"""The Alerts tab, the alarm line and desktop notifications. Main thread only."""
