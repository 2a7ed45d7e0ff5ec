"""The chat of `hybrid run` in a terminal: its session, its commands, and its start."""
