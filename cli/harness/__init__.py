"""lm-evaluation-harness (the extra `eval`) with our models: who imports from here imports it, which takes seconds."""
