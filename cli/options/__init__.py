"""Options that several commands share, and their conversion to the library's settings."""
