"""An answer that comes back as text is encoded as the tokens that the model drew."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from reference.tokenizer_files import FakeGGUF, bpe, sentencepiece

from hybrid.infer.answers.asking.ledger import BUDGET, MOST_ENCODED, Ledger
from hybrid.infer.answers.drawing.drawing import EndReason, GenerationResult
from hybrid.infer.text.encode import rendered_ids
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer

ASKED = "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n"
MORE = "<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def tok(data_dir: Path) -> Tokenizer:
    return load_tokenizer(bpe(data_dir / "tokenizers/bpe_qwen.json", "qwen2"))


def spelled(tok: Tokenizer, text: str) -> list[int]:
    """One token per byte: an encoding that no encoder would choose."""
    of_byte = {tok.piece(token): token for token in reversed(range(tok.n_vocab))}
    return [of_byte[bytes([byte])] for byte in text.encode()]


def noted(tok: Tokenizer, said: str, before: str = ASKED, **more: Any) -> tuple[Ledger, list[int]]:
    ledger = Ledger(tok, **more)
    ids = [*rendered_ids(tok, before), *spelled(tok, said)]
    ledger.note(before, said, ids)
    return ledger, ids


def test_an_answer_that_comes_back_is_what_was_drawn(tok: Tokenizer) -> None:
    ledger, ids = noted(tok, "A model of states.")
    text = ASKED + "A model of states." + MORE
    got = ledger.find(text)
    assert rendered_ids(tok, text)[: len(ids)] != ids, "encoded again, it is other tokens"
    assert got.known == ids and got.rest == rendered_ids(tok, MORE) and text[got.at :] == MORE
    assert ledger.encode(text) == got.ids and tok.decode(got.ids) == text
    other = ASKED + "A model of state." + MORE
    assert ledger.find(other).known == [] and ledger.encode(other) == rendered_ids(tok, other)


@pytest.mark.parametrize("plain", [False, True])
def test_an_answer_is_its_owners(tok: Tokenizer, plain: bool) -> None:
    said, mine, other = "A model of states.", b"m" * 16, b"o" * 16
    ledger, ids = Ledger(tok), [*rendered_ids(tok, ASKED), *spelled(tok, said)]
    ledger.note(ASKED, said, ids, plain=plain, owner=mine)
    loaded = Ledger(tok)
    loaded.load(json.loads(json.dumps(ledger.entries())))
    for each in (ledger, loaded):
        assert each.find(ASKED + said, plain=plain, owner=mine).known == ids
        for text, owner in ((ASKED, b""), (ASKED, other), (f"{mine.hex()}{ASKED}", b"")):
            assert not each.find(text + said, plain=plain, owner=owner).known
        assert not each.find(ASKED + said, plain=not plain, owner=mine).known
    assert ledger.anew(ASKED + said).known == []


@pytest.mark.parametrize("said", ["Yes.\n", "\n\nYes. ", "Yes."])
@pytest.mark.parametrize("shown", ["Yes.", " Yes.\n", "\n\nYes. "])
def test_white_space_around_it_may_differ(said: str, shown: str, tok: Tokenizer) -> None:
    """Templates and clients trim answers; a newline more or less must not lose the tokens of a conversation."""
    ledger, ids = noted(tok, said)
    for text in (ASKED + shown + MORE, "\n" + ASKED.rstrip() + shown + MORE):
        assert ledger.encode(text) == ids + rendered_ids(tok, MORE)


def test_white_space_elsewhere_may_not(tok: Tokenizer) -> None:
    before = ASKED.replace("What", "  What")
    ledger, ids = noted(tok, "if a:\n  b", before)
    for text in (ASKED + "if a:\n  b" + MORE, before + "if a:\n b" + MORE, before + "if a:\nb" + MORE):
        assert ledger.encode(text) == rendered_ids(tok, text)
    assert ledger.encode(before + "if a:\n  b" + MORE)[: len(ids)] == ids


def test_what_merges_with_the_answer_is_not_encoded_apart(tok: Tokenizer) -> None:
    ledger, ids = noted(tok, "The stat")
    for more in ("es of it." + MORE, "e", " " + MORE[1:], "es<|im_end|>"):
        text = ASKED + "The stat" + more
        got = ledger.find(text)
        whole, before = rendered_ids(tok, text), rendered_ids(tok, ASKED + "The stat")
        assert bool(got.known) == (whole[: len(before)] == before) == (more[0] != "e")
        assert got.ids == (ids + whole[len(before) :] if got.known else whole)


def test_a_template_without_control_tokens(tok: Tokenizer) -> None:
    """Without control tokens the text must be the same to the last space."""
    before, said, more = "User: What is it?\n\nAssistant:", " A model of states", "\n\nUser: And then?\n\nAssistant:"
    ledger, ids = noted(tok, said, before)
    assert ledger.encode(before + said + more) == ids + rendered_ids(tok, before + said + more, len(before + said))
    for text in (before + " " + said + more, " " + before + said + more, before + said.strip() + more):
        assert ledger.encode(text) == rendered_ids(tok, text)


def test_an_answer_that_was_cut_goes_on_from_its_very_end(tok: Tokenizer) -> None:
    """A client may send the beginning of an answer as the last message, to be continued."""
    ledger, ids = noted(tok, "The stat ")
    assert ledger.find(ASKED + "The stat ").ids == ids
    for text in (ASKED + "The stat", ASKED + "The stat  ", ASKED.rstrip() + "The stat "):
        assert ledger.encode(text) == rendered_ids(tok, text), "not where it ended"
    ledger.note(ASKED, "The states", [*rendered_ids(tok, ASKED), *spelled(tok, "The states")])
    assert ledger.encode(ASKED + "The stat ") == ids
    assert ledger.find(ASKED + "The states" + MORE).known[-1] == spelled(tok, "s")[0]


def test_the_longest_known_beginning_counts(tok: Tokenizer) -> None:
    ledger, first = noted(tok, "One.")
    second_asked = ASKED + "One." + MORE
    second = [*ledger.encode(second_asked), *spelled(tok, "Two.")]
    ledger.note(second_asked, "Two.", second)
    assert second[: len(first)] == first, "each answer stays what it was"
    assert ledger.find(second_asked + "Two." + MORE).known == second
    assert ledger.find(second_asked + "Three." + MORE).known == first
    # a template that drops the thoughts of earlier answers writes another text
    ledger.note(second_asked, "<think>Hm</think>Three.", [*ledger.encode(second_asked), *spelled(tok, "Three.")])
    assert ledger.find(second_asked + "Three." + MORE).known == first


def test_answers_that_were_cut_do_not_hide_what_is_known(tok: Tokenizer) -> None:
    """Many cut answers end within the first word of the text: none of them hides the answer that fits."""
    ledger, first = noted(tok, "One.")
    word = max((text for text in tok.vocabulary.tokens if text.isascii() and text.isalpha()), key=len)
    asked = ASKED + "One." + MORE
    for n in range(1, len(word)):
        ledger.note(asked, word[:n], [*ledger.encode(asked), *spelled(tok, word[:n])])
    assert len(ledger) > MOST_ENCODED + 1 and ledger.find(asked + word + MORE).known == first


def test_of_the_same_text_the_last_tokens_count(tok: Tokenizer) -> None:
    ledger, ids = noted(tok, "One.")
    again = rendered_ids(tok, ASKED + "One.")
    ledger.note(ASKED, "One.\n", again)
    assert ledger.find(ASKED + "One." + MORE).known == again != ids and len(ledger) == 1


def test_plain_texts(tok: Tokenizer) -> None:
    ledger = Ledger(tok)
    before, said = "The state", " is a model"
    ids = [*tok.encode(before), *spelled(tok, said)]
    ledger.note(before, said, ids, plain=True)
    assert ledger.encode(before + said, plain=True) == ids
    more = ledger.find(before + said + " of text", plain=True)
    assert more.known == ids and more.rest == tok.encode(" of text")
    for text in (before + said + "s", before + said.rstrip(), before + " " + said, " " + before + said, before):
        if text != before + said:
            assert ledger.encode(text, plain=True) == tok.encode(text)


def test_plain_and_rendered_texts_never_meet(tok: Tokenizer) -> None:
    """In a plain text a control token is ordinary text."""
    ledger, ids = noted(tok, "One.")
    text = ASKED + "One." + MORE
    assert ledger.encode(text, plain=True) == tok.encode(text)
    ledger.note(text, "Two.", [*tok.encode(text), *spelled(tok, "Two.")], plain=True)
    assert ledger.find(text + "Two." + MORE).known == ids


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_sentencepiece(kind: str, data_dir: Path) -> None:
    """SentencePiece puts a space before the first word, and EOS at the end where the vocabulary says so."""
    place = {"llama": "jamba-dense", "t5": "llama-unigram-bin"}[kind]
    tok = load_tokenizer(sentencepiece(data_dir / "checkpoints" / place / "tokenizer.model"))
    assert tok.kind == kind
    ledger = Ledger(tok)
    drawn = [token for word in (" re", "mem", "ber") for token in tok.encode(word, add_special=False)]
    stream = tok.stream(skip_special=True)
    said = "".join(map(stream.push, drawn))
    before = "All models"
    ids = [*tok.encode(before), *drawn]
    ledger.note(before, said, ids, plain=True)
    text = before + said + " every state"
    got = ledger.find(text, plain=True)
    assert got.known == ids and [*tok.encode(before + said, add_special=kind == "llama"), *got.rest] == tok.encode(text)
    bos, eos = (tok.piece(token).decode() if token is not None else "" for token in (tok.bos, tok.eos))
    asked = f"{bos}{eos}All models"
    rendered = rendered_ids(tok, asked)
    ledger.note(asked, said, [*rendered, *drawn])
    more = f"{eos} every state"
    got = ledger.find(asked + said + more)
    assert got.known == [*rendered, *drawn] and rendered_ids(tok, asked + said + more)[-len(got.rest) :] == got.rest


def result(tok: Tokenizer, ids: list[int], text: str, reason: EndReason = "eos", **more: Any) -> GenerationResult:
    return GenerationResult(reason, text, ids, **more)


def test_only_what_the_tokens_stand_for_is_noted(tok: Tokenizer) -> None:
    ledger, ids = Ledger(tok), rendered_ids(tok, ASKED)
    drawn = spelled(tok, "One.END")
    ledger.note_answer(ASKED, ids, result(tok, drawn, "One.", "stop", stop="END"))
    ledger.note_answer(ASKED, ids, result(tok, [], "", "interrupt"))
    ledger.note_answer("", [], result(tok, drawn, "One.END"))
    assert len(ledger) == 0
    ledger.note_answer(ASKED, ids, result(tok, drawn[:4], "One.", "interrupt"))
    assert ledger.find(ASKED + "One." + MORE).known == [*ids, *drawn[:4]], "what was drawn until it was cancelled"


@pytest.mark.parametrize("plain", [False, True])
def test_an_answer_without_text_changes_no_prompt(plain: bool, tok: Tokenizer) -> None:
    """After an answer whose text is empty, the same prompt is encoded as before."""
    ledger, ids = Ledger(tok), tok.encode(ASKED) if plain else rendered_ids(tok, ASKED)
    hidden = next(token for token in range(tok.n_vocab) if tok.is_control(token) and not tok.is_eog(token))
    for drawn in ([hidden], spelled(tok, "x")):
        ledger.note_answer(ASKED, ids, result(tok, drawn, "", "length"), plain=plain)
    assert ledger.encode(ASKED, plain=plain) == ids


def test_control_tokens_in_an_answer_are_known_as_text_too(tok: Tokenizer) -> None:
    """Tags of tool calls are left out of the answer's text, but a template writes them again."""
    mark = tok.token("<|fim_prefix|>")
    assert mark is not None and tok.is_control(mark)
    ledger, ids = Ledger(tok), rendered_ids(tok, ASKED)
    drawn = [mark, *spelled(tok, "{}")]
    ledger.note_answer(ASKED, ids, result(tok, drawn, "{}"))
    for said in ("{}", "<|fim_prefix|>{}"):
        assert ledger.find(ASKED + said + MORE).known == [*ids, *drawn]


def test_an_answer_that_comes_back_as_its_template_writes_it(tok: Tokenizer) -> None:
    """Clients parse the arguments of a call: they come back with the template's spaces."""
    drawn = '<tool_call>\n{"name":"f",  "arguments":{"a":1}}\n</tool_call>'
    written = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    answer = spelled(tok, drawn)
    eos = GenerationResult("eos", drawn, answer)
    for before in (ASKED, ASKED + "<think>\n"):
        ledger, ids = Ledger(tok), rendered_ids(tok, before)
        assert ledger.note_rendered(before, before + written + "<|im_end|>\n", ids, eos) == written
        assert ledger.encode(before + written + MORE) == [*ids, *answer, *rendered_ids(tok, MORE)]
        # left out of the text that comes back: none of it is known, and nothing wrong
        other = ASKED.replace("What", "Who") + "It is."
        assert ledger.note_rendered(before, other + "<|im_end|>\n", ids, eos) == "" and len(ledger) == 1


@pytest.mark.parametrize(
    ("reason", "end"), [("length", "<|im_end|>\n"), ("interrupt", "<|im_end|>"), ("stop", "<|im_end|>"), ("eos", "")]
)
def test_what_the_tokens_do_not_have_is_not_known_as_rendered(reason: EndReason, end: str, tok: Tokenizer) -> None:
    """Nothing is noted where the template closes a call that was cut off, or writes no end after an answer."""
    ledger = Ledger(tok)
    result = GenerationResult(reason, "<tool_call>", spelled(tok, "<tool_call>"))
    written = ASKED + "<tool_call>\n</tool_call>" + end
    assert ledger.note_rendered(ASKED, written, rendered_ids(tok, ASKED), result) == "" and not len(ledger)


def test_what_is_common_is_held_once_and_the_oldest_goes_first(tok: Tokenizer) -> None:
    system = "<|im_start|>system\n" + "You know everything. " * 500 + "<|im_end|>\n"
    ledger = Ledger(tok, 100_000)
    begin = rendered_ids(tok, system)
    asks = [f"<|im_start|>user\nNumber {i}<|im_end|>\n<|im_start|>assistant\n" for i in range(60)]

    def note(i: int) -> None:
        ledger.note(system + asks[i], "One.", [*begin, *rendered_ids(tok, asks[i]), *spelled(tok, "One.")])

    def known(i: int) -> bool:
        return bool(ledger.find(system + asks[i] + "One." + MORE).known)

    note(0)
    one = ledger.nbytes
    for i in range(1, 10):
        note(i)
    assert len(ledger) == 10 and ledger.nbytes < 2 * one
    assert known(0), "used now"
    n = next(i for i in range(10, 60) if note(i) or len(ledger) <= i)
    assert ledger.nbytes <= 100_000
    assert not known(1) and all(known(i) for i in (0, *range(2, n + 1))), "the one not used for longest has gone"
    ledger.budget = 0
    note(n + 1)
    assert len(ledger) == ledger.nbytes == 0


def test_it_can_be_kept(tok: Tokenizer) -> None:
    ledger, _ = noted(tok, " One.\n")
    second = ASKED + "One." + MORE
    ledger.note(second, "Two.", [*ledger.encode(second), *spelled(tok, "Two.")])
    ledger.note("The state", " of it", [*tok.encode("The state"), *spelled(tok, " of it")], plain=True)
    ledger.encode(second)  # the first was used again, so the second is the oldest
    saved = json.loads(json.dumps(ledger.entries()))
    other = Ledger(tok)
    other.load(saved)
    assert [answer[1:3] for answer in saved["answers"]] == [
        [["", "\n"], "Two."],
        [["", ""], " of it"],
        [["", "\n"], " One.\n"],
    ]
    assert [answer[1:3] for answer in other.entries()["answers"]] == [answer[1:3] for answer in saved["answers"]]
    assert other.nbytes == ledger.nbytes and len(other) == 3
    for text, plain in ((second + "Two." + MORE, False), (second, False), ("The state of it all", True)):
        assert other.find(text, plain=plain) == ledger.find(text, plain=plain)
        assert other.find(text, plain=plain).known
    small = Ledger(tok, ledger.nbytes - 1)
    small.load(saved)
    assert len(small) == 2 and small.find(second + "Two." + MORE).known != second


GOOD: dict[str, Any] = {"texts": [[0, "rab"]], "tokens": [[0, [5, 6]]], "answers": [[1, ["", ""], "c", 1]]}


@pytest.mark.parametrize(
    "entries",
    [
        None,
        5,
        [],
        {},
        {**GOOD, "texts": 5},
        {**GOOD, "texts": [[1, "rab"]]},
        {**GOOD, "texts": [[-1, "rab"]]},
        {**GOOD, "texts": [[True, "rab"]]},
        {**GOOD, "texts": [[0, ""]]},
        {**GOOD, "texts": [[0, "ab"]]},
        {**GOOD, "texts": [[0, ["r"]]]},
        {**GOOD, "texts": [[0]]},
        {**GOOD, "tokens": [[0, [-(1 << 31) - 1]]]},
        {**GOOD, "tokens": [[0, [1 << 20]]]},
        {**GOOD, "tokens": [[0, [1.0]]]},
        {**GOOD, "tokens": [[0, [True]]]},
        {**GOOD, "tokens": [[0, "ab"]]},
        {**GOOD, "tokens": [[0, []]]},
        {**GOOD, "tokens": [["0", [1]]]},
        {**GOOD, "answers": [[0, ["", ""], "c", 1]]},
        {**GOOD, "answers": [[1, ["", ""], "c", 0]]},
        {**GOOD, "answers": [[1, ["", ""], "c", 2]]},
        {**GOOD, "answers": [[1, ["", "x"], "c", 1]]},
        {**GOOD, "answers": [[1, ["", ""], 5, 1]]},
        {**GOOD, "answers": [[1, ["", ""], "c"]]},
        {**GOOD, "answers": [[1, "", "c", 1]]},
        {**GOOD, "answers": [[1, ["x", ""], "c", 1]]},
        {**GOOD, "answers": [[1, [0, ""], "c", 1]]},
        {**GOOD, "answers": [5]},
    ],
)
def test_damaged_entries_change_nothing(entries: Any, tok: Tokenizer) -> None:
    ledger, ids = noted(tok, "One.")
    with pytest.raises(ValueError):
        ledger.load(entries)
    assert ledger.find(ASKED + "One." + MORE).known == ids
    ledger.load({**GOOD, "tokens": [[0, [5, -(1 << 31)]]]})
    assert ledger.find("abc<|im_end|>").known == [5, -(1 << 31)], "a token of a picture"
    ledger.load(GOOD)
    assert len(ledger) == 1 and ledger.find("abc<|im_end|>").known == [5, 6]


def test_from_many_threads(tok: Tokenizer) -> None:
    """Lookups are right while another thread notes answers and old ones are dropped."""
    ledger = Ledger(tok, 40_000)
    done, wrong = threading.Event(), []

    def ask() -> None:
        i = 0
        while not done.is_set():
            i += 1
            text = f"{ASKED}Answer {i % 40}{MORE}"
            if tok.decode(ledger.encode(text)) != text:
                wrong.append(text)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    begin = rendered_ids(tok, ASKED)
    for i in range(400):
        ledger.note(ASKED, f"Answer {i % 40}", [*begin, *spelled(tok, f"Answer {i % 40}")])
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong and 0 < len(ledger) < 40 and ledger.nbytes <= 40_000


def test_a_control_token_of_unknown_text_is_no_beginning() -> None:
    """Converters type the unknown token CONTROL, but text that has no token is no boundary for merges."""
    metadata = {
        "model": "llama",
        "tokens": ["<unk>", "<s>", "</s>", "a", "b", "\u2581"],
        "scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0],
        "token_type": [3, 3, 3, 1, 1, 1],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    tok = load_tokenizer(FakeGGUF({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}))
    assert tok.is_control(tok.encode("\u00e9", add_special=False)[-1])
    ledger = Ledger(tok)
    ledger.note("<s>a</s>", "b", [*rendered_ids(tok, "<s>a</s>"), 5, 4])
    assert ledger.find("<s>a</s>b</s>").known
    assert ledger.encode("<s>a</s>b \u00e9</s>") == rendered_ids(tok, "<s>a</s>b \u00e9</s>"), "with its space"


def test_the_budget_is_what_is_stated(tok: Tokenizer) -> None:
    assert Ledger(tok).budget == BUDGET == 64 << 20
