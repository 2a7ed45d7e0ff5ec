"""Reports of measurements: tables, plots, memory."""
