"""The layers of the model families, one module each: a process imports only those that its family names."""
