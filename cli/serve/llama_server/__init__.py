"""Routes of llama-server that OpenAI does not have, and vLLM's routes with the same paths."""
