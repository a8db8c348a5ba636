"""The window itself: its parts, actions, menus, heartbeat, tabs, tour. Main thread only."""
