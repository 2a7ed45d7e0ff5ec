"""One text, or one message, that is answered once."""
