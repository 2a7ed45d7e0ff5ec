"""The layers that families are made of, one module for each: a start imports those that its family names."""
