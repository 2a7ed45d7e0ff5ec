"""Answers in a form that was asked for: JSON of a schema, a grammar, an expression, one of some texts."""

from .constraint import Constraint
from .grammar import Grammar

__all__ = ["Constraint", "Grammar"]
