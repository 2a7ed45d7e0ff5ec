"""The server of `hybrid serve`: HTTP APIs over one `Service` (infer/answers/batch/service.py)."""
