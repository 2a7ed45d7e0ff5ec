"""Which tokens may come next in an answer of a form, and where it has to end."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid.quant.ggml.errors import HybridError, Remedy, StateError, UsageError

from .grammar import Grammar, first_line
from .schema_place import place_of
from .vocabulary import guide_of

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

# Of llguidance: whoever sends a grammar cannot keep the others waiting. A mask takes 31 ms at most, of what was tried
# (hostile_forms.py of the tests). The first bounds a compilation, and text without a choice, which is found with the
# interpreter locked; 100 kB of tools need 100 000.
LIMITS = {
    "initial_lexer_fuel": 400_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 20_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 500_000,
}


class DeadEndError(HybridError):
    """Nothing can follow in an answer. why: as llguidance says it."""

    def __init__(self, grammar: Grammar, error: str) -> None:
        self.why = first_line(error)
        super().__init__(f"the answer cannot go on in the form of {grammar.name}: {self.why}")


class Constraint:
    """The state of one answer. `masked`, then `accept` of the token that was drawn, until `ended`.

    source: what the grammar is compiled from, where that is known (see Trial). UsageError: the grammar cannot be
    compiled; of a schema it says which keyword, and where. Of a grammar from outside use `Forms`: this may take long.
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
        self._saved: list[int] = []  # what had to follow when the state was saved
        self._bits = np.zeros(-(-self.n_vocab // 32), np.uint32)
        self._allow()  # only a look at what may come first tells whether anything may
        error = self._matcher.get_error()
        if error and not error.startswith("NoExtension"):
            raise _refusal(grammar, error, tokenizer)
        if error or (self.ended and not self.may_end):
            raise UsageError(f"nothing fits {grammar.name}: it asks for itself, or for what cannot be.")

    def masked(self, logits: np.ndarray) -> np.ndarray:
        """logits f32 [n_vocab] with -inf for tokens that cannot follow. DeadEndError: none can."""
        self._allow()
        self._check()
        # a mask refuses nearly all tokens or, in free text, nearly none: only those unlike the others are looked at
        if 2 * np.count_nonzero(self._bits) < len(self._bits):
            allowed = self._tokens(self._bits)
            masked = np.full_like(logits, -np.inf)
            masked[allowed] = logits[allowed]
        else:
            masked = logits.copy()
            masked[self._tokens(~self._bits)] = -np.inf
        return masked

    def _tokens(self, bits: np.ndarray) -> np.ndarray:
        """Of bits u32 [n_vocab / 32] the tokens whose bit is set, int64."""
        words = np.flatnonzero(bits)
        rows, columns = np.nonzero(np.unpackbits(bits[words].view(np.uint8), bitorder="little").reshape(-1, 32))
        tokens = words[rows] * 32 + columns
        return tokens[tokens < self.n_vocab]

    def accept(self, token: int) -> None:
        """The next token of the answer. DeadEndError: it cannot follow."""
        self._matcher.consume_token(token)
        self._check()
        self._said.append(token)

    def forced(self) -> list[int]:
        """The tokens that have to follow, as the tokenizer writes their text; often none."""
        if self._saved:  # once begun, their text is not written in other tokens
            saved, self._saved = self._saved, []
            return saved
        if self.ended:
            return []
        tokens = list(self._matcher.compute_ff_tokens())
        self._check()  # a fault of the tokenizer would end the answer
        return tokens

    def n_possible(self, tokens: Sequence[int]) -> int:
        """How many of these tokens could follow."""
        n = 0 if self.ended else int(self._matcher.validate_tokens(list(tokens)))
        self._check()
        return n

    @property
    def may_end(self) -> bool:
        """Whether the answer is whole."""
        return bool(self._matcher.is_accepting())

    @property
    def ended(self) -> bool:
        """Whether nothing more can follow."""
        return bool(self._matcher.is_stopped())

    def copy(self) -> "Constraint":
        """Another state, which goes its own way."""
        other = object.__new__(Constraint)
        other.__dict__.update(self.__dict__)
        other._matcher, other._bits = self._matcher.deep_copy(), np.zeros_like(self._bits)
        other._said, other._saved = list(self._said), list(self._saved)
        return other

    def state(self, forced: Sequence[int]) -> dict[str, Any]:
        """What `resumed` reads; `forced`: what has to follow, and is not drawn yet."""
        return {"grammar": self.grammar.to_json(), "said": list(self._said), "forced": list(forced)}

    def resumed(self, state: Mapping[str, Any]) -> "Constraint":
        """A copy, at its beginning, brought to where `state` was taken. StateError: it is no such state."""
        other = self.copy()
        tokens = [state.get("said"), state.get("forced")]
        if not all(isinstance(some, list) and all(self._has(token) for token in some) for some in tokens):
            raise StateError("the state's answer has no tokens of this vocabulary.", remedy=Remedy.WITHOUT_STATE)
        said, forced = tokens
        assert said is not None and forced is not None
        try:
            for token in said:
                other.accept(token)
        except DeadEndError as error:
            raise StateError(
                f"the state's answer does not have its form: {error.why}.", remedy=Remedy.WITHOUT_STATE
            ) from None
        if other.n_possible(forced) < len(forced):
            raise StateError("the state's answer cannot go on as it says.", remedy=Remedy.WITHOUT_STATE)
        other._saved = list(forced)
        return other

    def _has(self, token: object) -> bool:
        return type(token) is int and 0 <= token < self.n_vocab

    def _allow(self) -> None:
        """Find out which tokens may come next, a bit for each."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)

    def _check(self) -> None:
        if not self._matcher.is_error():
            return
        error = self._matcher.get_error()
        if error.startswith("panic"):  # a fault of llguidance, or of our tokenizer: the text may have a traceback
            raise RuntimeError(f"llguidance: {first_line(error)}")
        raise DeadEndError(self.grammar, error)


def _refusal(grammar: Grammar, error: str, tokenizer: "Tokenizer") -> UsageError:
    """What cannot be compiled, and where in a schema it is."""
    for part in grammar.parts.values():
        if (says := _fault(part.grammar, tokenizer)) is not None:
            return _said(part.name, part.grammar, says, tokenizer, part.pointer)
    return _said(grammar.name, grammar, error, tokenizer)


def _fault(grammar: Grammar, tokenizer: "Tokenizer") -> str | None:
    """Why a form cannot be compiled; None: it can."""
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
