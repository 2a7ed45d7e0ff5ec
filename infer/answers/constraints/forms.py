"""Compiles the forms of one vocabulary once each: prompt files and clients ask for the same few again and again."""

import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import HybridError, UsageError

from .constraint import Constraint
from .grammar import Grammar
from .trial import Trial

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

MOST_KEPT = 32  # compiled forms, up to 10 MB each
MOST_WAITING = 24  # forms that are compiled or wait for it: each blocks its client's thread


class TooManyFormsError(HybridError):
    """Too many forms wait to be compiled."""


class Forms:
    """Compiles forms, and keeps the last ones. Forms are compiled one at a time, on one core; callers that ask for the
    same form wait for the same compilation. Thread-safe.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._known: OrderedDict[Grammar, Constraint] = OrderedDict()
        self._making: dict[Grammar, Future[Constraint]] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self.trial = Trial(tokenizer)
        self.n_compiled = 0

    def compiled(self, grammar: Grammar) -> Constraint:
        """The constraint, to be copied for each answer. UsageError: it does not compile; TooManyFormsError: not now."""
        with self._lock:
            if (known := self._known.get(grammar)) is not None:
                self._known.move_to_end(grammar)
                return known
            waiting = self._making.get(grammar)
            if waiting is None:
                if len(self._making) >= MOST_WAITING:
                    raise TooManyFormsError(f"{MOST_WAITING} forms of answers wait to be compiled. Try again later.")
                making = self._making[grammar] = Future()
        return waiting.result() if waiting is not None else self._made(grammar, making)

    def fault(self, grammar: Grammar) -> str | None:
        """Why a form cannot be compiled; None if it can. The result is not kept."""
        with self._turn:
            try:
                self.trial.source(grammar)
            except UsageError as error:
                return str(error)
        return None

    def widened(self, schema: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """See Trial.widened."""
        with self._turn:
            return self.trial.widened(schema)

    def _made(self, grammar: Grammar, making: "Future[Constraint]") -> Constraint:
        try:
            with self._turn:
                made = Constraint(grammar, self._tokenizer, self.trial.source(grammar))
        except BaseException as error:
            making.set_exception(error)
            with self._lock:
                del self._making[grammar]
            raise
        with self._lock:
            self.n_compiled += 1
            self._known[grammar] = made
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
            del self._making[grammar]
        making.set_result(made)
        return made

    def close(self) -> None:
        """Ends the trial process, which otherwise ends with this object."""
        self.trial.close()
