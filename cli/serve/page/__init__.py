"""The page of `hybrid serve`: its files, and what it asks beside the API."""
