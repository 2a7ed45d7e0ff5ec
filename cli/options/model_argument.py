"""Help texts for the argument MODEL. What a model may be: library/pipeline/models.py."""

WHAT = "GGUF file, Hugging Face folder, or ORG/NAME[:TYPE] on Hugging Face"
DEFAULT = f"{WHAT}. Default: bundled model."
FILE = "GGUF file, or ORG/NAME[:TYPE] on Hugging Face"
