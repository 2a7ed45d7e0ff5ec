"""Files of prompts, and their answers."""

SUFFIX = ".jsonl"  # of a file of prompts; other files are one text
