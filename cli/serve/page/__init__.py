"""The web page of `hybrid serve`: its files, and its routes besides the API."""
