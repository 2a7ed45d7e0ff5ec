"""Keys of models that make embeddings, which llama.cpp lacks: see docs/gguf-extensions.md."""

NAMES, TEXTS = "hybrid.prompts.names", "hybrid.prompts.texts"  # string [n] each
DEFAULT = "hybrid.prompts.default"  # string: a name
SKIPPED = "hybrid.prompts.skipped"  # string [n]: tokens of documents without a vector (ColBERT)
DIMENSIONS = "hybrid.embedding.dimensions"  # u32 [n]
