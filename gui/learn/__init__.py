"""The Learn tab: exercises that check themselves. Main thread only."""
