"""Kernels and the emitter that writes them."""

from .build import sources as sources  # first: see there
