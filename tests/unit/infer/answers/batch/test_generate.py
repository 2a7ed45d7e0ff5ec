"""One answer of a scripted network: ends, stop strings across tokens, interrupts, timings."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.answers.batch.generate import Generation, generate
from hybrid.infer.answers.drawing.drawing import Drawing, GenerationResult, StopText
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.runner import Result, Runner, Slot, Work
from hybrid.infer.sequence import Sequence as TokenSequence
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import HybridError, UsageError

EOS = 256


@pytest.fixture(scope="module")
def tok() -> Tokenizer:
    """One token per byte, then </s>."""
    return byte_tokenizer()


def byte_tokenizer(**more: Any) -> Tokenizer:
    """As `tok`. more: further keys, without hybrid.tokenizer."""
    good = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    hidden = iter(range(256, 512))
    tokens = [chr(byte) if byte in good else chr(next(hidden)) for byte in range(256)] + ["</s>"]
    metadata = {"model": "gpt2", "tokens": tokens, "token_type": [1] * 256 + [3], "merges": [], "eos_token_id": EOS}
    ours = {f"hybrid.tokenizer.{key}": value for key, value in more.items()}
    return load_tokenizer(FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in metadata.items()} | ours))


class Memory:
    """A memory with one slot."""

    bytes_state_per_seq, positions, is_together = 0, [SimpleNamespace(plain=True)], False

    def __init__(self, n_ctx: int) -> None:
        self.n_ctx, self.n_past = n_ctx, np.zeros(1, np.int64)

    def room(self, slot: int) -> int:
        return self.n_ctx - int(self.n_past[slot])

    def size_of(self, slot: int, n: int) -> str:
        return f"{n} tokens"

    def is_moved(self, slot: int) -> bool:
        return False

    def release(self, slot: int) -> None:
        self.n_past[slot] = 0


class Scripted(Runner):
    """A network whose greedy continuation is `text`, then EOS without end."""

    def __init__(self, tok: Tokenizer, text: str, n_ctx: int = 1000) -> None:
        self.script = [*text.encode(), EOS]
        self.interrupt_at: int | None = None  # how many steps go well
        self.interrupt_after = False
        self.n_decoded = 0
        engine: Any = SimpleNamespace(
            memory=Memory(n_ctx),
            n_ctx=n_ctx,
            n_vocab=257,
            n_ubatch=64,
            stop=None,
            compile_seconds=0.0,
            stopped_by=lambda _: nullcontext(),
            with_stop=nullcontext,
            shape=lambda n: n,
        )
        engine.memory.n_seq_max, engine.memory.attention = 1, SimpleNamespace(kind=SimpleNamespace(name="f32"))
        super().__init__(engine, SimpleNamespace(tokenizer=tok, adapters=[]))  # type: ignore[arg-type]

    def predict(self) -> np.ndarray:
        logits = np.zeros(257, np.float32)
        logits[self.script[min(self.n_decoded, len(self.script) - 1)]] = 9
        return logits

    def read(self, seq: Slot, ids: Sequence[int]) -> np.ndarray:
        start = len(seq.tokens)
        self.memory.n_past[seq.slot] += len(ids)
        seq.has_seen(start, ids)
        return self.predict()

    def eval(self, works: Iterable[Work], *_: Any) -> list[Result]:
        return [Result(self.read(work.seq, work.ids)[None], None) for work in works]

    def step(self, seq: Slot, token: int) -> np.ndarray:
        if not seq.tokens:  # a prompt of one token
            return self.read(seq, [token])
        if self.n_decoded == self.interrupt_at and not self.interrupt_after:
            raise KeyboardInterrupt
        self.n_decoded += 1
        logits = self.read(seq, [token])
        if self.n_decoded - 1 == self.interrupt_at:
            raise KeyboardInterrupt
        return logits


def script(tok: Tokenizer, text: str, n_ctx: int = 1000) -> TokenSequence:
    return TokenSequence(Scripted(tok, text, n_ctx))


def greedy() -> Sampler:
    return Sampler(SamplingParams(temp=0), 257)


def start(seq: TokenSequence, prompt: str = "p", **options: Any) -> Generation:
    return generate(seq, list(prompt.encode()), greedy(), **options)


def run(seq: TokenSequence, prompt: str = "p", **options: Any) -> Generation:
    """Run to the end; checks that the result is the joined output."""
    answer = start(seq, prompt, **options)
    pieces = list(answer)
    assert "".join(piece.text for piece in pieces) == answer.result.text
    assert [piece.id for piece in pieces if piece.id is not None] == answer.result.ids
    return answer


def test_until_the_end_of_the_answer(tok: Tokenizer) -> None:
    seq = script(tok, "hé€!")
    result = run(seq).result
    assert (result.reason, result.text, result.eog, result.pending) == ("eos", "hé€!", EOS, [])
    assert result.ids == list("hé€!".encode())
    assert seq.tokens == [*b"p", *"hé€!".encode()], "the token that ends the answer is not in the sequence"
    assert (result.prompt_tokens, result.gen_tokens) == (1, 7)


def test_characters_come_whole(tok: Tokenizer) -> None:
    assert [piece.text for piece in start(script(tok, "h€"))] == ["h", "", "", "€"]


def test_until_enough(tok: Tokenizer) -> None:
    seq = script(tok, "hello")
    answer = run(seq, max_tokens=3)
    assert (answer.result.reason, answer.result.text) == ("length", "hel")
    assert answer.result.pending == [ord("l")]
    assert bytes(seq.tokens) == b"phe", "the last pass is spared"
    seq.decode(answer.result.pending[0])
    rest = generate(seq, [], greedy())
    assert "".join(piece.text for piece in rest) == "lo"


def test_nothing_wanted(tok: Tokenizer) -> None:
    seq = script(tok, "hello")
    result = run(seq, max_tokens=0).result
    assert (result.reason, result.text, result.ttft, bytes(seq.tokens)) == ("length", "", None, b"p")


def test_until_the_context_is_full(tok: Tokenizer) -> None:
    seq = script(tok, "hello", n_ctx=3)
    answer = run(seq)
    result = answer.result
    assert (result.reason, result.text, result.pending) == ("context", "hel", [ord("l")])
    assert bytes(seq.tokens) == b"phe"


def test_an_unfinished_character_at_the_end(tok: Tokenizer) -> None:
    answer = run(script(tok, "h€"), max_tokens=3)
    assert answer.result.text == "h\ufffd"


@pytest.mark.parametrize(
    ("text", "stop", "expected", "ended_by"),
    [
        ("one two three", ["two"], "one ", "two"),
        ("one two three", ["o t", "ne"], "o", "ne"),
        ("aaab", ["aab"], "a", "aab"),
        ("one tw", ["two"], "one tw", None),
        ("x\n\ny", ["\n\n"], "x", "\n\n"),
        ("x€y", ["€"], "x", "€"),
        ("abab", ["ba", "bab"], "a", "ba"),
        ("abc", ["abc", "b"], "", "abc"),
    ],
)
def test_stop_strings(tok: Tokenizer, text: str, stop: list[str], expected: str, ended_by: str | None) -> None:
    """The last row: with one token per byte `b` is complete before `abc` is, but `a` may begin `abc`."""
    if ended_by == "abc":
        ended_by, expected = "b", "a"
    result = run(script(tok, text), stop=stop).result
    assert (result.text, result.stop) == (expected, ended_by)
    assert result.reason == ("stop" if ended_by else "eos")


@given(st.text("ab", max_size=14), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_strings_however_the_text_is_cut(text: str, stop: list[str], data: st.DataObject) -> None:
    """However the text is cut, no stop string and nothing after it is given out."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    chunks: Iterator[str] = iter(parts)
    stream: Any = SimpleNamespace(push=lambda _: next(chunks), flush=lambda: "")
    held = StopText(stream, stop)
    out = ""
    for _ in parts:
        out += held.push(0)
        if held.found:
            break
    out += held.finish()
    if held.found is None:
        assert out == text
        assert not any(word in text for word in stop)
    else:
        assert text.startswith(out + held.found)
        assert not any(word in out for word in stop)


def test_text_held_back_is_released(tok: Tokenizer) -> None:
    pieces = list(start(script(tok, "xab"), stop=["abc"]))
    assert [(piece.text, piece.id) for piece in pieces] == [("x", 120), ("", 97), ("", 98), ("ab", None)]


def test_ends_are_not_drawn_when_ignored(tok: Tokenizer) -> None:
    seq = script(tok, "hi")
    result = run(seq, max_tokens=4, ignore_eos=True).result
    assert result.text == "hi\x00\x00"
    assert result.reason == "length"
    sampler = greedy()
    list(generate(seq, [1], sampler, max_tokens=2, ignore_eos=True))
    assert list(generate(seq, [1], sampler, max_tokens=2)) == [], "the next generation may end again"


@pytest.mark.parametrize("after", [False, True])
def test_interrupt_keeps_what_there_is(tok: Tokenizer, after: bool) -> None:
    seq = script(tok, "hello")
    network: Any = seq.runner
    network.interrupt_at, network.interrupt_after = 2, after
    result = run(seq, stop=["lx"]).result
    assert (result.reason, result.text) == ("interrupt", "hel")
    assert result.pending == ([] if after else [ord("l")])
    assert bytes(seq.tokens) + bytes(result.pending) == b"phel"


def test_interrupt_in_the_prompt(tok: Tokenizer) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    result = run(script(tok, "hello"), progress=interrupt).result
    assert (result.reason, result.text, result.prompt_tokens) == ("interrupt", "", 0)
    assert result.prompt_seconds > 0


def test_closed_early(tok: Tokenizer) -> None:
    answer = start(script(tok, "hello"), stop=["elx"])
    for piece in answer:
        if piece.id == ord("l"):
            break
    answer.close()
    assert (answer.result.reason, answer.result.text) == ("interrupt", "hel")
    assert list(answer) == []


def test_penalties_see_prompt_and_answer(tok: Tokenizer) -> None:
    sampler = Sampler(SamplingParams(temp=0, repeat_penalty=2.0), 257)
    list(generate(script(tok, "hi"), list(b"prompt"), sampler))
    assert bytes(sampler.state()["recent"]) == b"prompthi"


def test_times(tok: Tokenizer) -> None:
    result = run(script(tok, "hello")).result
    assert result.ttft is not None
    assert result.ttft >= result.prompt_seconds > 0
    assert result.gen_seconds > 0


def test_refusals(tok: Tokenizer) -> None:
    seq = script(tok, "x", n_ctx=4)
    with pytest.raises(UsageError, match="the prompt is empty and nothing came before it"):
        list(start(seq, ""))
    with pytest.raises(UsageError, match='a stop string is ""'):
        start(seq, stop=["a", ""])
    with pytest.raises(UsageError, match="max_tokens = -2, expected 0 or more, or -1"):
        start(seq, max_tokens=-2)
    with pytest.raises(UsageError, match="do not fit the context of 4"):
        list(start(seq, "12345"))


def test_broken_logits_end_it(tok: Tokenizer) -> None:
    seq = script(tok, "x")
    seq.runner.predict = lambda: np.full(257, np.nan, np.float32)  # type: ignore[attr-defined]
    with pytest.raises(HybridError, match="the logits hold NaN"):
        list(start(seq))


def drawn(tok: Tokenizer, script: Sequence[int], *, stop: Sequence[str] = (), **more: Any) -> GenerationResult:
    """The greedy answer to logits that prefer the script's tokens, and "." where such a token is forbidden."""
    drawing = Drawing(Sampler(SamplingParams(temp=0), 257), tok, 20, stop, **more)
    drawing.begin([])
    for token in script:
        logits = np.zeros(257, np.float32)
        logits[token], logits[ord(".")] = 9, 1
        drawing.draw(logits)
        if reason := drawing.ended:
            drawing.result.reason = reason
            break
    drawing.finish()
    return drawing.result


def test_more_tokens_that_end_an_answer(tok: Tokenizer) -> None:
    x = ord("x")
    result = drawn(tok, b"ab\x78cd", ends=[x, 2**70])
    assert (result.text, result.reason, result.eog) == ("ab", "eos", x)
    result = drawn(tok, [*b"ab", EOS, x, *b"cd"], ends=[x], ignore_eos=True)
    assert (result.text, result.eog) == ("ab.", x), "ignore_eos does not cover the tokens in `ends`"


def test_every_end_of_the_file_ends_an_answer() -> None:
    """All of a file's list, whatever their number, and with ignore_eos none."""
    listed = [ord(letter) for letter in "xyz"]
    tokenizer = byte_tokenizer(end_token_ids=listed)
    for end in (*listed, EOS):
        result = drawn(tokenizer, [*b"ab", end, *b"cd"])
        assert (result.text, result.reason, result.eog) == ("ab", "eos", end)
    result = drawn(tokenizer, [*b"a", *listed, EOS, *b"b"], ignore_eos=True)
    assert (result.text, result.eog) == ("a....b", None)


def test_nothing_ends_an_answer_before_min_tokens(tok: Tokenizer) -> None:
    script = [ord("a"), EOS, ord("x"), ord("b"), EOS]
    assert drawn(tok, script).text == "a"
    assert drawn(tok, script, min_tokens=2).text == "a.xb"
    assert drawn(tok, script, min_tokens=3, ends=[ord("x")]).text == "a..b"
    result = drawn(tok, b"abcabc", stop=["b", "bc"], min_tokens=2)
    assert (result.text, result.stop) == ("abca", "b"), "text of the first two tokens does not count"
    assert drawn(tok, b"abcabc", stop=["ca"], min_tokens=3).text == "abcabc", "it began before"
    for n in (-1, 21):
        with pytest.raises(
            UsageError, match=f"min_tokens = {n}, expected a number of tokens from 0 to max_tokens = 20"
        ):
            drawn(tok, script, min_tokens=n)


def test_control_tokens_in_the_text(tok: Tokenizer) -> None:
    script = [*b"ab", EOS]
    tokenizer: Any = SimpleNamespace(stream=tok.stream, eog=frozenset(), is_eog=lambda token: False)
    assert drawn(tokenizer, script).text == "ab" and drawn(tokenizer, script, special=True).text == "ab</s>"
