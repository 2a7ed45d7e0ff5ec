"""`python -m hybrid.cli`, for where the console script is not on the path."""

from .main import main

main()
