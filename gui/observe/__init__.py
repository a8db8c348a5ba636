"""Running scripts in the window: the menu that lists them, the page about their steps. Main thread only."""
