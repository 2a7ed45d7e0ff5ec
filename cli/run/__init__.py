"""Answers to one text or message."""
