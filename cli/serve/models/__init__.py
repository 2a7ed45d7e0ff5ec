"""The models of one server: their names, which of them are loaded, and when one makes room for another."""
