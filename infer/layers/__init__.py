"""The layers of the model families, one module each: a process imports only the modules that its family names."""
