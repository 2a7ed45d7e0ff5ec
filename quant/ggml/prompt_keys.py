"""Keys of models that make embeddings, which llama.cpp lacks: see docs/gguf-extensions.md."""

NAMES, TEXTS = "hybrid.prompts.names", "hybrid.prompts.texts"  # string [n] each
DEFAULT = "hybrid.prompts.default"  # string: a name
DIMENSIONS = "hybrid.embedding.dimensions"  # u32 [n]
