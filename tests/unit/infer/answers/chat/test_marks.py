"""Tags that are control tokens are part of an answer's text; other control tokens are not."""

import numpy as np
from chat_vocabulary import CONTROL, chat_tokenizer

from hybrid.infer.answers.chat.format import ChatFormat, ThoughtFormat
from hybrid.infer.answers.chat.marks import shown_tokens
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.tokenizer import Tokenizer

FORMAT = ChatFormat(ThoughtFormat("<think>", "</think>"))
TEXT = "<think>a<|im_start|>b</think><tool_call>\n1</tool_call>"


def drawn(tokenizer: Tokenizer, text: str, shown: frozenset[int], stop: tuple[str, ...] = ()) -> str:
    drawing = Drawing(Sampler(SamplingParams(temp=0), tokenizer.n_vocab), tokenizer, -1, stop, shown=shown)
    drawing.begin(())
    for token in tokenizer.encode(text, add_special=False, continues=True, parse_special=True):
        logits = np.zeros(tokenizer.n_vocab, np.float32)
        logits[token] = 9
        drawing.draw(logits)
        if drawing.ended:
            break
    drawing.finish()
    return drawing.result.text


def test_marks_are_text() -> None:
    tokenizer = chat_tokenizer(CONTROL)
    shown = shown_tokens(FORMAT, tokenizer)
    assert drawn(tokenizer, TEXT, shown) == TEXT.replace("<|im_start|>", "")
    assert drawn(tokenizer, TEXT, frozenset()) == "ab\n1", "as it was without them"
    assert drawn(tokenizer, TEXT, shown, ("b</think><tool",)) == "<think>a", "a stop may lie in them"


def test_a_text_in_parts() -> None:
    for kind in (1, 3, 4):
        tokenizer = chat_tokenizer(kind)
        parts = tokenizer.parts("a<think>b\n<s>")
        assert parts[-1] == tokenizer.bos
        texts = [tokenizer.piece(part).decode() if isinstance(part, int) else part for part in parts]
        assert texts == (["a<think>b\n", "<s>"] if kind == 1 else ["a", "<think>", "b\n", "<s>"])
