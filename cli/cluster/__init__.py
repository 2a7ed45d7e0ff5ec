"""Work divided over the worker processes of a Dask cluster (`--cluster`). Imported only with that option."""
