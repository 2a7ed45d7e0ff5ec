"""llama.cpp's server tests against `hybrid serve`: see benchmarks/llama_server_suite.py."""
