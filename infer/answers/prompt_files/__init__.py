"""Files of prompts, and their answers."""

SUFFIX = ".jsonl"  # of a file of prompts: others are one text
