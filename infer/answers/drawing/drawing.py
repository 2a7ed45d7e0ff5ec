"""From logits to a token and its text, and whether the answer ends with it."""

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hybrid.quant.ggml.errors import HybridError, Remedy, UsageError

from ...text.tokenizer import StreamDecoder, Tokenizer
from ..sampling import Sampler
from .stop_strings import searching

if TYPE_CHECKING:
    from ..chat.reader import AnswerReader
    from ..chat.thoughts import ThoughtBudget, ThoughtMarks
    from ..constraints import Constraint

EndReason = Literal["eos", "stop", "length", "context", "interrupt"]


@dataclass(frozen=True)
class TokenLogprobs:
    """ln p of a sampled token and of the most likely ones, best first: of the model, before penalties, temperature and
    all else that the sampler does, or after the sampler (`Drawing.sampled`).
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class TextPiece:
    """One sampled token and the text that became complete with it, often ""; id None: text released at the end.

    logprobs: None unless requested.
    """

    text: str
    id: int | None
    logprobs: TokenLogprobs | None = None


@dataclass
class GenerationResult:
    """The generated text, why it ended, and how long it took (seconds)."""

    reason: EndReason = "interrupt"  # stays if the answer is broken off
    text: str = ""
    ids: list[int] = field(default_factory=list)  # sampled tokens, without the one that ended the answer
    eog: int | None = None  # the token that ended it (reason "eos"); it is not in the sequence
    repeated: bool = False  # a call equal to the one before ended it (reason "eos"); the text contains that call
    pending: list[int] = field(default_factory=list)  # sampled and yielded, but not yet in the sequence: at most one
    stop: str | None = None  # the stop string found (reason "stop"); not part of `text`
    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    gen_tokens: int = 0  # tokens sampled after the first one
    passes: int = 0  # through the model after the prompt: fewer than gen_tokens if guesses came true
    guessed: int = 0  # guessed tokens that were verified
    accepted: int = 0  # guessed tokens that were right
    forced: int = 0  # guessed tokens that the form of the answer left no choice about
    gen_seconds: float = 0.0
    discarded: int = 0  # tokens that left the attention layers when the context was full
    ttft: float | None = None  # from the call of the first `next` to the first sampled token


class Drawing:
    """One answer while it is sampled: `draw` from the logits after all tokens so far, until `ended` says why it is
    over.

    max_tokens  -1: no limit
    stop        strings that end the text; they are found across tokens and are not part of it. Thoughts, if a `budget`
                tells them from text, are not searched
    ignore_eos  tokens that end an answer are never sampled
    ends        more tokens that end it, also with ignore_eos
    min_tokens  neither tokens nor stop strings end it earlier; a form itself decides where it may end
    special     control tokens are part of its text
    n_top       each piece has logprobs: its token's and the n_top largest; None: no logprobs
    sampled     logprobs are taken after the sampler
    constraint  the form of the answer, which only this answer may use from now on
    shown       special tokens that are part of its text (chat/marks.py); the others are not
    budget      of its thoughts, also for this answer only
    calls       reads its calls, which end it when one equals the call before

    end_logprobs: of the token that ended the answer, which is in no piece. A text that has a line feed ends as "length"
    `most_seconds` after the first token.
    """

    most_seconds = math.inf

    def __init__(  # noqa: PLR0913  the settings of one answer
        self,
        sampler: Sampler,
        tokenizer: Tokenizer,
        max_tokens: int,
        stop: Sequence[str],
        ignore_eos: bool = False,
        n_top: int | None = None,
        sampled: bool = False,
        constraint: "Constraint | None" = None,
        shown: Collection[int] = (),
        budget: "ThoughtBudget | None" = None,
        *,
        calls: "AnswerReader | None" = None,
        ends: Collection[int] = (),
        min_tokens: int = 0,
        special: bool = False,
    ) -> None:
        if max_tokens < -1:
            raise UsageError(f"max_tokens = {max_tokens}, expected 0 or more, or -1 for as many as fit")
        if min_tokens < 0 or 0 <= max_tokens < min_tokens:
            most = "" if max_tokens < 0 else f" to max_tokens = {max_tokens}"
            raise UsageError(f"min_tokens = {min_tokens}, expected a number of tokens from 0{most}")
        if n_top is not None and not 0 <= n_top <= sampler.n_vocab:
            raise UsageError(f"n_top = {n_top}, expected a number of tokens from 0 to {sampler.n_vocab}")
        self.result, self.n_top, self.sampled = GenerationResult(), n_top, sampled
        self.sampler, self.max_tokens = sampler, max_tokens
        self.end_logprobs: TokenLogprobs | None = None
        self.tokenizer, self._ignore_eos = tokenizer, ignore_eos
        self._ends, self.min_tokens, self._stop = frozenset(ends), min_tokens, stop
        searching(stop)  # refuses invalid ones now, not after min_tokens
        thoughts = None if budget is None or not stop else budget.marks.copy()
        self._text = StopText(
            tokenizer.stream(skip_special=not special, shown=shown), () if min_tokens else stop, thoughts
        )
        self._first = math.inf  # when the first token was sampled
        self.constraint = constraint
        self.budget = budget if budget is not None and budget.is_bounded else None
        self._calls = calls
        self._forced: list[int] = []  # tokens that must come next

    def begin(self, prompt: Sequence[int]) -> None:
        """Starts the answer. prompt: the tokens before it that the sampler has not seen."""
        self._ban()
        self.sampler.accept_all(prompt)
        if self.constraint is not None:
            self._forced = self.constraint.forced()
        elif self.budget is not None:
            self._forced = self.budget.forced
        self._force()

    def _ban(self) -> None:
        """Forbids the sampler the tokens that may not come next."""
        is_early = len(self.result.ids) < self.min_tokens and self.constraint is None
        banned = self.tokenizer.eog if self._ignore_eos or is_early else frozenset()
        self.sampler.ban(banned | self._ends if is_early else banned)

    @property
    def is_forced(self) -> bool:
        """Whether the form or the budget leaves no choice about the next token."""
        return bool(self._forced)

    @property
    def foresees(self) -> bool:
        """Whether tokens may be forced, or guesses refused: then call `foreseen`."""
        return self.constraint is not None or self.budget is not None

    def _follow(self, token: int) -> None:
        """Passes a sampled token to the form and the budget."""
        if self.constraint is not None:
            self.constraint.accept(token)
        if self.budget is not None:
            self.budget.accept(token)
        self._force()

    def _force(self) -> None:
        """Sets the tokens that must come next, when none are left of the earlier ones."""
        if self._forced:
            return
        closing = self.budget.closing if self.budget is not None else []
        if closing and (self.constraint is None or self.constraint.n_possible(closing) == len(closing)):
            self._forced = closing
        elif self.constraint is not None:
            self._forced = self.constraint.forced()

    def foreseen(self, guess: Sequence[int], room: int) -> list[int]:
        """The tokens that are worth verifying after the last one, at most `room`: forced tokens, otherwise as much of a
        guess as the form allows.
        """
        if self._forced:
            return self._forced[:room]
        if self.budget is not None and (left := self.budget.left) is not None:
            room = min(room, left)
        if self.constraint is None:
            return list(guess[:room])
        return list(guess[: self.constraint.n_possible(guess[:room])]) if guess else []

    @property
    def left(self) -> int | None:
        """Tokens that may still be sampled; None: as many as fit."""
        return None if self.max_tokens < 0 else self.max_tokens - len(self.result.ids)

    def draw(self, logits: np.ndarray) -> TextPiece | None:
        """Samples the next token; None if the model ends the answer. The token is pending until the caller processes
        it.
        """
        result, token = self.result, self._next(logits)
        logprobs = self._logprobs(logits, token)
        if self.tokenizer.is_eog(token) or token in self._ends:
            result.eog, self.end_logprobs = token, logprobs
            return None
        self.sampler.accept(token)
        self._first = min(self._first, time.monotonic())
        result.ids.append(token)
        result.pending = [token]
        text = self._text.push(token)
        result.text += text
        result.stop = self._text.found
        if self._calls is not None:
            self._calls.push(text)
            result.repeated = self._calls.repeated
        if len(result.ids) == self.min_tokens:
            self._text.look_for(self._stop)
            self._ban()
        self._follow(token)
        return TextPiece(text, token, logprobs)

    def _next(self, logits: np.ndarray) -> int:
        """The next token. A forced one is not sampled: the answer must not depend on how many were verified at once."""
        if self._forced:
            self.sampler.forced()
            return self._forced.pop(0)
        if not logits[0] and not logits.any():
            raise HybridError(
                "the logits are all zero: values of the model are beyond what its numbers can hold. "
                "Convert the model again.",
                remedy=Remedy.VERIFY,
            )
        if self.constraint is None:
            return self.sampler.sample(logits)
        masked = self.constraint.masked(logits)
        try:
            return self.sampler.sample(masked)
        except HybridError as error:
            if not np.isfinite(logits.max()):
                raise  # the logits themselves are to blame
            from ..constraints.grammar import first_line

            raise UsageError(
                f"no token that may be sampled fits {self.constraint.grammar.name} here: {first_line(error)}"
            ) from None

    def _logprobs(self, logits: np.ndarray, token: int) -> TokenLogprobs | None:
        """Logprobs of a token that was sampled and is not yet accepted."""
        if self.n_top is None:
            return None
        if not self.sampled:
            return token_logprobs(logits, token, self.n_top)
        if self.sampler.probabilities is None:
            return TokenLogprobs(0.0, ((token, 0.0),)[: self.n_top])
        tokens, p = self.sampler.probabilities
        order = np.lexsort((tokens, -p))[: self.n_top]
        top = tuple((int(tokens[i]), math.log(p[i])) for i in order if p[i] > 0)
        own = float(p[tokens == token].sum())
        return TokenLogprobs(math.log(own) if own > 0 else -math.inf, top)

    @property
    def ended(self) -> EndReason | None:
        """Why nothing more is sampled; None: it goes on."""
        if self.result.eog is not None or self.result.repeated:
            return "eos"
        if self.result.stop is not None:
            return "stop"
        if self.constraint is not None and self.constraint.ended and self.result.ids:
            return "eos"
        late = time.monotonic() - self._first > self.most_seconds and "\n" in self.result.text
        return "length" if self.left == 0 or late else None

    def state(self) -> dict[str, Any]:
        """The state of an unfinished answer, beside its tokens and the sampler's state: its form, and the rest of its
        budget of
        thoughts.

        See saved_states.form_behind and ThoughtBudget.resumed.
        """
        if self.result.eog is not None or (self.constraint is not None and self.constraint.ended):
            return {}
        state = {} if self.constraint is None else {"form": self.constraint.state(self._forced)}
        return state if self.budget is None else state | {"thoughts": self.budget.state(self._forced)}

    def finish(self) -> TextPiece | None:
        """Releases the text held back for a stop string that did not come."""
        rest = self._text.finish()
        self.result.text += rest
        return TextPiece(rest, None) if rest else None


def token_logprobs(logits: np.ndarray, token: int, n_top: int) -> TokenLogprobs:
    """Logprobs from one row of logits, f32 [n_vocab]; equal ones are ordered by id."""
    from ...evaluate.windows import log_softmax

    ln_p = log_softmax(logits[None].astype(np.float64))[0]
    # stable order of all tokens that reach the value of the last one
    least = np.partition(ln_p, len(ln_p) - n_top)[len(ln_p) - n_top] if n_top else np.inf
    ids = np.flatnonzero(ln_p >= least)
    best = ids[np.argsort(-ln_p[ids], kind="stable")[:n_top]]
    return TokenLogprobs(float(ln_p[token]), tuple((int(i), float(ln_p[i])) for i in best))


class StopText:
    """Text from tokens; text that may begin a stop string is held back.

    thoughts  tells thoughts from text: stop strings are not searched for in thoughts, and do not begin in them
    """

    def __init__(self, stream: StreamDecoder, stop: Sequence[str], thoughts: "ThoughtMarks | None" = None) -> None:
        self._stream, self._thoughts, self._stops = stream, thoughts, searching(stop)
        self._state = 0  # of the search
        self._held = ""
        self.found: str | None = None

    def look_for(self, stop: Sequence[str]) -> None:
        """Searches for these strings, in the text that comes from now on."""
        self._stops, self._state = searching(stop), 0

    def push(self, token: int) -> str:
        """The text that is certain not to be part of a stop string. Sets `found` if there is one."""
        return self._told(self._stream.push(token), final=False)

    def finish(self) -> str:
        """The text that was held back, at the end."""
        return "" if self.found is not None else self._told(self._stream.flush(), final=True)

    def _told(self, new: str, final: bool) -> str:
        if self._thoughts is None:
            return self._release(new, final)
        told, parts = "", self._thoughts.split(new)
        for text, is_thought in [*parts, (self._thoughts.rest() if final else "", False)]:
            if self.found is not None:
                break
            if is_thought:
                told, self._held, self._state = told + self._held + text, "", 0
            else:
                told += self._release(text, final)
        return told

    def _release(self, new: str, final: bool) -> str:
        text, stops = self._held + new, self._stops
        # (where the stop string begins, -its length): the first one, then the longest
        hit: tuple[int, int] | None = None
        for end, character in enumerate(new, len(self._held) + 1):
            self._state = stops.step(self._state, character)
            if n := stops.longest[self._state]:
                hit = min(hit or (end, 0), (end - n, -n))
        if hit is not None:
            at, n = hit
            self._held, self.found = "", text[at : at - n]
            return text[:at]
        cut = len(text) - (0 if final else stops.depth[self._state])
        self._held = text[cut:]
        return text[:cut]
