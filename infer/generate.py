"""The generation loop: prompt in, text out piece by piece, until something ends it.

answer = generate(seq, ids, sampler, max_tokens=200, stop=["\\n\\n"])
for piece in answer:
    show(piece.text)
answer.result.reason
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from hybrid.quant.ggml.errors import UsageError

from .sampling import Sampler
from .speculate import NGramSpeculator
from .tokenizer import StreamDecoder, Tokenizer

Reason = Literal["eos", "stop", "length", "context", "interrupt"]


class TextSequence(Protocol):
    """What the loop asks of a sequence (hybrid.infer.Sequence has more)."""

    tokens: list[int]

    @property
    def n_past(self) -> int: ...
    @property
    def logits(self) -> np.ndarray | None: ...
    @property
    def model(self) -> Any: ...  # .tokenizer, .n_ctx
    def prefill(
        self, ids: Sequence[int], progress: Callable[[int, int], None] | None = None, boundaries: Sequence[int] = ()
    ) -> np.ndarray: ...
    def decode(self, token: int) -> np.ndarray: ...
    def verify(self, ids: Sequence[int]) -> np.ndarray: ...
    def take_back(self, n: int) -> None: ...


@dataclass(frozen=True)
class Piece:
    """One drawn token and the text that became complete with it, often ""; id None: text released at the end."""

    text: str
    id: int | None


@dataclass
class GenerationResult:
    """What was generated, why it ended, and how long it took (seconds)."""

    reason: Reason = "interrupt"  # what it would be if nothing came after this
    text: str = ""
    ids: list[int] = field(default_factory=list)  # drawn tokens, without the one that ended the answer
    eog: int | None = None  # the token that ended it (reason "eos"); it is not in the sequence
    pending: list[int] = field(default_factory=list)  # drawn and yielded, but not yet in the sequence: at most one
    stop: str | None = None  # the stop string found (reason "stop"); not part of `text`
    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    gen_tokens: int = 0  # tokens drawn after the first one
    passes: int = 0  # through the model after the prompt: fewer than gen_tokens where guesses came true
    guessed: int = 0  # tokens that were verified on suspicion
    accepted: int = 0  # those of them that came true
    gen_seconds: float = 0.0
    ttft: float | None = None  # from the call of the first `next` to the first drawn token

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second; 0 where nothing was measured."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds > 0 else 0.0

    @property
    def gen_rate(self) -> float:
        """Generated tokens per second; 0 where nothing was measured."""
        return self.gen_tokens / self.gen_seconds if self.gen_seconds > 0 else 0.0


def generate(
    seq: TextSequence,
    prompt_ids: Sequence[int],
    sampler: Sampler,
    *,
    max_tokens: int = -1,
    stop: Sequence[str] = (),
    ignore_eos: bool = False,
    progress: Callable[[int, int], None] | None = None,
    tokenizer: Tokenizer | None = None,
    boundaries: Sequence[int] = (),
    speculate: bool = False,
) -> "Generation":
    """Appends the prompt to `seq` and generates after it; nothing happens before the first `next`.

    prompt_ids  may be empty when the sequence has logits (a restored state, an answer to be continued)
    max_tokens  -1: until the context is full
    stop        strings that end the text; they are found across tokens and are not part of it
    ignore_eos  tokens that end an answer are never drawn
    progress    (done, total) while the prompt is processed
    boundaries  positions in the whole text that will be come back to: see Sequence.prefill
    speculate   guess tokens from what the text said before: the same tokens in fewer passes

    UsageError: nothing to generate from, or the prompt does not fit. A KeyboardInterrupt while the model computes ends
    the generation as reason "interrupt"; what was generated up to there is kept.
    """
    if any(not text for text in stop):
        raise UsageError('a stop string is "", expected at least one character')
    if max_tokens < -1:
        raise UsageError(f"max_tokens = {max_tokens}, expected 0 or more, or -1 for as many as fit")
    own = tokenizer if tokenizer is not None else seq.model.tokenizer
    prompt = list(prompt_ids)
    return Generation(seq, prompt, sampler, max_tokens, list(stop), ignore_eos, progress, own, boundaries, speculate)


class Generation:
    """Iterator over Pieces. `result` can be read at any time and is complete after the last piece."""

    def __init__(
        self,
        seq: TextSequence,
        prompt: list[int],
        sampler: Sampler,
        max_tokens: int,
        stop: list[str],
        ignore_eos: bool,
        progress: Callable[[int, int], None] | None,
        tokenizer: Tokenizer,
        boundaries: Sequence[int],
        speculate: bool,
    ) -> None:
        self.result = GenerationResult()
        self._seq = seq
        self._prompt = prompt
        self._sampler = sampler
        self._max_tokens = max_tokens
        self._progress = progress
        self._boundaries = boundaries
        self._speculator: NGramSpeculator | None = None
        self._speculate = speculate
        self._guess: list[int] = []  # in the sequence already, yet to be drawn
        self._rows: list[np.ndarray] = []  # the logits after each of them
        self._n_guess = 0  # tokens of the guess when it was made; 0: none is pending
        self._tokenizer = tokenizer
        self._text = StopText(tokenizer.stream(skip_special=True), stop)
        self._ignore_eos = ignore_eos
        self._pieces = self._run()

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> Piece:
        return next(self._pieces)

    def close(self) -> None:
        """Ends it early; the text held back for a stop string is added to `result.text`."""
        self._pieces.close()

    def settle(self) -> None:
        """Brings the last drawn token into the sequence: before its state is saved, or when it is to go on unprompted.

        Otherwise that pass through the model is spared, since the next prompt can carry `result.pending` along.
        """
        if self.result.pending and self._seq.n_past < self._seq.model.n_ctx:
            self._seq.decode(self.result.pending[0])
            self.result.pending = []

    def _run(self) -> Generator[Piece, None, None]:
        result = self.result
        try:
            result.reason = yield from self._loop()
        except KeyboardInterrupt:
            pass  # "interrupt", as it began
        except GeneratorExit:
            result.text += self._text.finish()
            raise
        finally:
            self._end_guess()
        rest = self._text.finish()
        if rest:
            result.text += rest
            yield Piece(rest, None)

    def _loop(self) -> Generator[Piece, None, Reason]:
        """Yields pieces; returns the reason of the end."""
        seq, sampler, result = self._seq, self._sampler, self.result
        sampler.ban(self._tokenizer.eog if self._ignore_eos else ())
        begin = time.perf_counter()
        try:
            logits = self._read_prompt()
        finally:
            result.prompt_seconds = time.perf_counter() - begin
        if self._speculate:
            self._speculator = NGramSpeculator(seq.tokens)
        while len(result.ids) != self._max_tokens:
            token = sampler.sample(logits)
            if result.ttft is None:
                result.ttft = time.perf_counter() - begin
            if self._tokenizer.is_eog(token):
                result.eog = token
                return "eos"
            sampler.accept(token)
            result.ids.append(token)
            result.pending = [token]
            text = self._text.push(token)
            result.text += text
            yield Piece(text, token)
            if self._text.found is not None:
                result.stop = self._text.found
                return "stop"
            if len(result.ids) == self._max_tokens:
                break
            if seq.n_past - len(self._guess) >= seq.model.n_ctx:
                return "context"
            before = time.perf_counter()
            logits = self._next(token)
            result.gen_seconds += time.perf_counter() - before
            result.gen_tokens += 1
        return "length"

    def _next(self, token: int) -> np.ndarray:
        """The logits after `token`, which has been guessed already, or goes through the model, maybe with a guess."""
        seq, result, speculator = self._seq, self.result, self._speculator
        if self._guess and self._guess[0] == token:
            result.pending = []
            result.accepted += 1
            self._guess.pop(0)
            assert speculator is not None
            speculator.extend([token])
            return self._rows.pop(0)
        self._end_guess()
        guess: list[int] = []
        if speculator is not None:
            speculator.extend([token])
            left = self._max_tokens - len(result.ids) if self._max_tokens >= 0 else seq.model.n_ctx
            guess = speculator.guess(min(left, seq.model.n_ctx - seq.n_past) - 1)
        past = seq.n_past
        result.passes += 1
        try:
            if not guess:
                return seq.decode(token)
            rows = seq.verify([token, *guess])
        finally:
            if seq.n_past > past:  # an interrupt may come before or after
                result.pending = []
        result.guessed += len(guess)
        self._guess, self._rows, self._n_guess = guess, list(rows[1:]), len(guess)
        return rows[0]

    def _end_guess(self) -> None:
        """What was guessed and not drawn is taken back."""
        if self._n_guess:
            self._seq.take_back(len(self._guess))
            assert self._speculator is not None
            self._speculator.learn(self._n_guess, self._n_guess - len(self._guess))
            self._guess, self._rows, self._n_guess = [], [], 0

    def _read_prompt(self) -> np.ndarray:
        if self._prompt:
            self._sampler.accept_all(self._prompt)
            logits = self._seq.prefill(self._prompt, self._progress, self._boundaries)
            self.result.prompt_tokens = len(self._prompt)
            return logits
        if self._seq.logits is None:
            raise UsageError("the prompt is empty and nothing came before it. Give some text to start from.")
        return self._seq.logits


class StopText:
    """Text from tokens, with what might be the beginning of a stop string held back."""

    def __init__(self, stream: StreamDecoder, stop: Sequence[str]) -> None:
        self._stream = stream
        self._stop = list(stop)
        self._held = ""
        self.found: str | None = None

    def push(self, token: int) -> str:
        """The text that is certain not to be part of a stop string. `found` is set when there is one."""
        return self._release(self._stream.push(token), final=False)

    def finish(self) -> str:
        """What was held back, at the end of the text."""
        return "" if self.found is not None else self._release(self._stream.flush(), final=True)

    def _release(self, new: str, final: bool) -> str:
        text = self._held + new
        hits = [(at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if hits:
            at, self.found = min(hits, key=lambda hit: (hit[0], -len(hit[1])))
            self._held = ""
            return text[:at]
        keep = 0 if final else max((_overlap(text, stop) for stop in self._stop), default=0)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
