"""Output of answers to a terminal, and input of messages."""
