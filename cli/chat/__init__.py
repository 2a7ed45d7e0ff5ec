"""The chat that `hybrid run` opens in a terminal: the session, its commands, and how it begins."""
