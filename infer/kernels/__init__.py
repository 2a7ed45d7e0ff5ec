"""Kernels and the emitter that writes them."""

from . import sources as sources  # first: see there
