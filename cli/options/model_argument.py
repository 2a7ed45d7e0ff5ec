"""Help texts for the argument MODEL, which library/pipeline/models.py resolves."""

WHAT = "GGUF file, Hugging Face folder, or ORG/NAME[:TYPE] on Hugging Face"
DEFAULT = f"{WHAT}. Default: bundled model."
FILE = "GGUF file, or ORG/NAME[:TYPE] on Hugging Face"
