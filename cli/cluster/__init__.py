"""Work divided over the worker processes of a Dask cluster (`--cluster`). Nothing here is imported without it."""
