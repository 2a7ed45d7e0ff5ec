"""ollama's API."""
