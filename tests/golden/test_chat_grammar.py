"""The answers in llama.cpp's tests may be sampled: its grammars accept each of them, and so do ours."""

import json
from functools import cache

import pytest
from chat_vocabulary import CONTROL, NORMAL, chat_tokenizer
from golden.chat_cases import CASES, Case, offered, template_of, thinks
from golden.test_chat_answers import FENCE, OTHERWISE

from hybrid.infer.answers.chat.call_grammar import answer_grammar
from hybrid.infer.answers.chat.tools import ToolChoice
from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import HybridError

CLOSING = "marks stand as the template writes them, white space before a closing one too"
ORDER = "parameters stand in the order of the schema"
LITERALS = "in lists and objects literals are JSON's"
AT_ONCE = "who must call a tool says nothing before"

# Answers that may not be sampled, and why.
REFUSED = {
    "llama.cpp: 2447 Qwen3.5-4B": AT_ONCE,
    "llama.cpp: 2553 Qwen3.5-4B": AT_ONCE,
    "llama.cpp: 3332 NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": CLOSING,
    "llama.cpp: 3340 NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": CLOSING,
    "llama.cpp: 3733 Qwen3-Coder": ORDER,
    "llama.cpp: 3748 Qwen3-Coder": ORDER,
    "llama.cpp: 3764 Qwen3-Coder": ORDER,
    "llama.cpp: 3781 Qwen3-Coder": ORDER,
    "llama.cpp: 3799 Qwen3-Coder": ORDER,
    "llama.cpp: 2045 LFM2-8B-A1B": LITERALS,
    "llama.cpp: 2045 LFM2.5-Instruct": LITERALS,
    "llama.cpp: 2045 LFM2.5-8B-A1B": LITERALS,
    **{name: reason for name, reason in OTHERWISE.items() if reason == FENCE},
}


@cache
def tokenizer(kind: int) -> Tokenizer:
    return chat_tokenizer(kind)


def fits(case: Case, kind: int) -> bool:
    """Whether the answer, or a cut answer as far as it goes, may be sampled."""
    vocabulary = tokenizer(kind)
    schema = Grammar.json_schema(json.dumps(case.schema)) if case.schema else None
    grammar = answer_grammar(
        template_of(case.template)[1],
        vocabulary,
        offered(case),
        ToolChoice("required" if case.choice == "required" else "auto"),
        parallel=case.parallel,
        thinks=thinks(case),
        form=schema,
    )
    assert grammar is not None
    state = Constraint(grammar, vocabulary).copy()
    text = case.input.strip()
    try:
        for token in vocabulary.encode(text, add_special=False, continues=True, parse_special=True):
            state.accept(token)
    except HybridError:
        return False
    return case.is_partial or state.may_end


DRAWN = [
    case
    for case in CASES
    if case.name.startswith("llama.cpp") and (case.tools or case.schema) and OTHERWISE.get(case.name, FENCE) == FENCE
]


@pytest.mark.parametrize("kind", [NORMAL, CONTROL])
@pytest.mark.parametrize("case", DRAWN, ids=lambda case: case.name)
def test_what_a_model_writes_may_be_drawn(case: Case, kind: int) -> None:
    """kind: whether tags are text or special tokens."""
    assert fits(case, kind) != (case.name in REFUSED)
