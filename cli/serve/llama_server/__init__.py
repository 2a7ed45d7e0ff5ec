"""The routes of llama.cpp's server that OpenAI has not, and vLLM's where they have the same paths."""
