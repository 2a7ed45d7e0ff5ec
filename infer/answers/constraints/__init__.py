"""Forms of answers: a JSON schema, a grammar, a regular expression, a choice of texts."""

from .constraint import Constraint
from .grammar import Grammar

__all__ = ["Constraint", "Grammar"]
