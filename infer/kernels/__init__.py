"""Kernels and the emitter that writes them."""

from .build import sources as sources  # first, for the reason in sources.py
