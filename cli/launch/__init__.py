"""Settings of other programs that use a model of `hybrid serve`."""
