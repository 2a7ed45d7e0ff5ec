"""Which tokens may come next in an answer with a form, and where the answer must end."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid.quant.ggml.errors import HybridError, Remedy, StateError, UsageError

from .grammar import Grammar, first_line
from .schema_place import place_of
from .vocabulary import guide_of

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

# Limits of llguidance: nobody's grammar may keep the others waiting. A mask takes at most 31 ms in all that was tried
# (hostile_forms.py of the tests). The first limits a compilation, and text without a choice, which is found with the
# interpreter locked; 100 kB of tools need 100 000.
LIMITS = {
    "initial_lexer_fuel": 400_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 20_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 500_000,
}


class DeadEndError(HybridError):
    """No token can continue the answer. why: llguidance's message."""

    def __init__(self, grammar: Grammar, error: str) -> None:
        self.why = first_line(error)
        super().__init__(f"the answer cannot go on in the form of {grammar.name}: {self.why}")


class Constraint:
    """The state of one answer with a form. Repeat `masked`, then `accept` of the sampled token, until `ended`.

    source: llguidance's text of the grammar, if it is known (see Trial). Raises UsageError if the grammar cannot be
    compiled; for a schema, the error names the keyword and its place. Use `Forms` for a grammar from outside: compiling
    may take long.
    """

    def __init__(self, grammar: Grammar, tokenizer: "Tokenizer", source: str | None = None) -> None:
        import llguidance

        self.grammar, self.n_vocab = grammar, tokenizer.n_vocab
        limits = llguidance.LLParserLimits(**LIMITS, precompute_large_lexemes=True, verbose_errors=False)
        source = grammar.source() if source is None else source
        self._matcher = llguidance.LLMatcher(guide_of(tokenizer), source, log_level=0, limits=limits)
        if self._matcher.is_error():
            raise _refusal(grammar, self._matcher.get_error(), tokenizer)
        self._said: list[int] = []
        self._saved: list[int] = []  # tokens that had to follow when the state was saved
        self._bits = np.zeros(-(-self.n_vocab // 32), np.uint32)
        self._allow()  # only the first mask shows whether any token may come
        error = self._matcher.get_error()
        if error and not error.startswith("NoExtension"):
            raise _refusal(grammar, error, tokenizer)
        if error or (self.ended and not self.may_end):
            raise UsageError(f"nothing fits {grammar.name}: it refers to itself without end, or contradicts itself.")

    def masked(self, logits: np.ndarray) -> np.ndarray:
        """The logits, with -inf for tokens that cannot follow; f32 [n_vocab]. Raises DeadEndError if none can."""
        self._allow()
        self._check()
        # a mask refuses nearly all tokens or, in free text, nearly none: visit only the smaller group
        if 2 * np.count_nonzero(self._bits) < len(self._bits):
            allowed = self._tokens(self._bits)
            masked = np.full_like(logits, -np.inf)
            masked[allowed] = logits[allowed]
        else:
            masked = logits.copy()
            masked[self._tokens(~self._bits)] = -np.inf
        return masked

    def _tokens(self, bits: np.ndarray) -> np.ndarray:
        """The tokens whose bit is set in bits u32 [n_vocab / 32], int64."""
        words = np.flatnonzero(bits)
        rows, columns = np.nonzero(np.unpackbits(bits[words].view(np.uint8), bitorder="little").reshape(-1, 32))
        tokens = words[rows] * 32 + columns
        return tokens[tokens < self.n_vocab]

    def accept(self, token: int) -> None:
        """Takes the next token of the answer. Raises DeadEndError if it cannot follow."""
        self._matcher.consume_token(token)
        self._check()
        self._said.append(token)

    def forced(self) -> list[int]:
        """The tokens that must follow, as the tokenizer encodes their text; often empty."""
        if self._saved:  # a text that was begun keeps its tokens
            saved, self._saved = self._saved, []
            return saved
        if self.ended:
            return []
        tokens = list(self._matcher.compute_ff_tokens())
        self._check()  # an error of the tokenizer would end the answer
        return tokens

    def n_possible(self, tokens: Sequence[int]) -> int:
        """How many of these tokens, from the first on, can follow."""
        n = 0 if self.ended else int(self._matcher.validate_tokens(list(tokens)))
        self._check()
        return n

    @property
    def may_end(self) -> bool:
        """Whether the answer is complete, and may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def ended(self) -> bool:
        """Whether nothing more can follow."""
        return bool(self._matcher.is_stopped())

    def copy(self) -> "Constraint":
        """An independent copy of the state."""
        other = object.__new__(Constraint)
        other.__dict__.update(self.__dict__)
        other._matcher, other._bits = self._matcher.deep_copy(), np.zeros_like(self._bits)
        other._said, other._saved = list(self._said), list(self._saved)
        return other

    def state(self, forced: Sequence[int]) -> dict[str, Any]:
        """The state for `resumed`. forced: the tokens that must follow and are not sampled yet."""
        return {"grammar": self.grammar.to_json(), "said": list(self._said), "forced": list(forced)}

    def resumed(self, state: Mapping[str, Any]) -> "Constraint":
        """A copy, from the beginning, advanced to where `state` was taken. Raises StateError if `state` is invalid."""
        other = self.copy()
        tokens = [state.get("said"), state.get("forced")]
        if not all(isinstance(some, list) and all(self._has(token) for token in some) for some in tokens):
            raise StateError("the state's answer has tokens outside this vocabulary.", remedy=Remedy.WITHOUT_STATE)
        said, forced = tokens
        assert said is not None and forced is not None
        try:
            for token in said:
                other.accept(token)
        except DeadEndError as error:
            raise StateError(
                f"the state's answer does not match its form: {error.why}.", remedy=Remedy.WITHOUT_STATE
            ) from None
        if other.n_possible(forced) < len(forced):
            raise StateError(
                "the state's answer cannot continue with the tokens it names.", remedy=Remedy.WITHOUT_STATE
            )
        other._saved = list(forced)
        return other

    def _has(self, token: object) -> bool:
        return type(token) is int and 0 <= token < self.n_vocab

    def _allow(self) -> None:
        """Computes which tokens may come next, one bit per token."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)

    def _check(self) -> None:
        if not self._matcher.is_error():
            return
        error = self._matcher.get_error()
        if error.startswith("panic"):  # an error of llguidance or our tokenizer: the text may have a traceback
            raise RuntimeError(f"llguidance: {first_line(error)}")
        raise DeadEndError(self.grammar, error)


def _refusal(grammar: Grammar, error: str, tokenizer: "Tokenizer") -> UsageError:
    """The error for a grammar that cannot be compiled, with the place in a schema."""
    for part in grammar.parts.values():
        if (says := _fault(part.grammar, tokenizer)) is not None:
            return _said(part.name, part.grammar, says, tokenizer, part.pointer)
    return _said(grammar.name, grammar, error, tokenizer)


def _fault(grammar: Grammar, tokenizer: "Tokenizer") -> str | None:
    """Why a form cannot be compiled; None if it can."""
    import llguidance

    limits = llguidance.LLParserLimits(**LIMITS, precompute_large_lexemes=False, verbose_errors=False)
    source, guide = grammar.source(), guide_of(tokenizer)
    wrong, says = llguidance.LLMatcher.validate_grammar_with_warnings(source, guide, limits=limits)
    return says[0] if wrong else None


def _said(name: str, grammar: Grammar, error: str, tokenizer: "Tokenizer", pointer: str = "") -> UsageError:
    says = first_line(error.removeprefix("WARNING: "))
    where = pointer
    if grammar.kind == "json_schema":
        where += place_of(grammar.text, guide_of(tokenizer))
    return UsageError(f"{name} cannot be used: {says}{f' (at {where})' if where else ''}")
