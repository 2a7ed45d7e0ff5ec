"""lm-evaluation-harness (the extra `eval`) with our models. Importing this package imports it, which takes seconds."""
