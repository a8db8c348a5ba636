"""What is seen of recordings: the button that makes them and the bar that plays them. Main thread only."""
