"""The server of `hybrid serve`: HTTP in OpenAI's shapes over one `Service` (infer/answers/batch/service.py)."""
