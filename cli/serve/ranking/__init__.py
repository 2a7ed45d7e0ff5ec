"""Routes that rank documents for a query, or put texts into classes: Jina's and Cohere's format, TEI's, vLLM's."""
