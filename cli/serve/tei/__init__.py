"""Routes in the format of Hugging Face's text-embeddings-inference."""
