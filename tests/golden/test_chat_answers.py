"""Answers with thoughts and tool calls, parsed as in the tests of llama.cpp, ollama and vLLM.

tests/data/chat/README.md describes the cases. Every answer arrives whole, in two pieces cut at every position, and
character by character, and always gives the same message. As in those tests, whitespace at the ends of texts does not
count, and arguments are compared as JSON.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from golden.chat_cases import CASES, DATA, FILES, MORE, Case, Json, offered, prompt_of, template_of, thinks, value_of

from hybrid.infer.answers.chat.prompting import message_of
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.quant.ggml.errors import HybridError

FENCE = "no fence is taken off: where an answer has a form, none can be drawn"
NO_FORMAT = "the template takes no tools in Jinja: they are described, and called, in our own way"
ONLY_ITS_OWN = "the template asks for variables that only its own client has"
LAST_MARK = "the mark behind calls is not found: a special token, which no text shows"
THOUGHTS_STAY = "thoughts of a message that is continued are written"
RECIPIENT = "a text, too, is a call, of `all`: there is no such format"
OPENAI_NAMES = "names of tools are OpenAI's: letters, digits, '_', '-' and '.'"
AS_FAR = "a call is told once its name is there, then its arguments as far as they go"
LATE_ID = "the id stands behind the arguments, which are told before it: the caller has got another"
PYTHON = "texts are Python's: a backslash escapes"
QUOTES = "what looks like the end of a text ends it: held to a schema, a text has no such quotes"
NOTHING_LOST = "a text behind a call is never dropped"
SCHEMA = "the schema says which type"

# Answers that are deliberately read otherwise, and why.
OTHERWISE = {
    "llama.cpp: 2377 Qwen3.5-4B": "thoughts that are opened twice are thoughts, the mark is none",
    "llama.cpp: 2648 mistralai-Ministral-3-14B-Reasoning-2512": FENCE,
    "llama.cpp: 5424 Apertus-8B-Instruct": LAST_MARK,
    "llama.cpp: 5431 Apertus-8B-Instruct": THOUGHTS_STAY,
    "llama.cpp: 5917 mistralai-Mistral-Nemo-Instruct-2407": LATE_ID,
    "llama.cpp: 5951 meetkai-functionary-medium-v3.2": RECIPIENT,
    "llama.cpp: 5952 meetkai-functionary-medium-v3.2": RECIPIENT,
    "llama.cpp: 5970 fireworks-ai-llama-3-firefunction-v2": ONLY_ITS_OWN,
    "llama.cpp: 5971 fireworks-ai-llama-3-firefunction-v2": ONLY_ITS_OWN,
    "llama.cpp: 5978 fireworks-ai-llama-3-firefunction-v2": ONLY_ITS_OWN,
    "llama.cpp: 6029 llama-cpp-deepseek-r1": NO_FORMAT,
    "llama.cpp: 6070 deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": NO_FORMAT,
    "llama.cpp: 6302 meta-llama-Llama-3.1-8B-Instruct": FENCE,
    "ollama: lfm2: TestLFM2Parser_parseToolCallContent/invalid_argument_format": AS_FAR,
    "ollama: lfm2: TestLFM2Parser_parseToolCallsContent/escaped_quote_in_value": PYTHON,
    "ollama: lfm2: TestLFM2Parser_parseToolCallsContent/newline_in_string_arg": PYTHON,
    "ollama: lfm2: TestLFM2Parser_BareToolCallFallback": "a call without its mark is a text",
    "ollama: qwen3coder: TestQwenToolParser/names with spaces": OPENAI_NAMES,
    "ollama: qwen3coder: TestQwenToolParser/names with quotes": OPENAI_NAMES,
    "ollama: qwen3coder: TestQwenToolParser/unicode in function names and parameters": OPENAI_NAMES,
    "ollama: qwen3coder: TestQwenToolCallValueParsing/null value lowercase": SCHEMA,
    "ollama: qwen3coder: TestQwenToolCallValueParsing/invalid boolean falls back to false": SCHEMA,
    "vllm: lfm2: nested_python_c": QUOTES,
    "vllm: lfm2: bad_sibling_call_does_not_drop_good_calls": AS_FAR,
    "vllm: lfm2: echoed_tool_call_body_not_leaked_to_content": NOTHING_LOST,
    "vllm: lfm2: regex_timeout_handling": AS_FAR,
    "vllm: nemotron_nano_v2: returns_original_for_malformed": AS_FAR,
}

NO_FIELD = "the template takes thoughts in no field of a message"

# Messages that are rendered otherwise than the model wrote them.
COMES_BACK_OTHERWISE = {
    "llama.cpp: 2606 mistralai-Ministral-3-14B-Reasoning-2512": NO_FIELD,
    "llama.cpp: 2611 mistralai-Ministral-3-14B-Reasoning-2512": NO_FIELD,
    "llama.cpp: 2660 mistralai-Ministral-3-14B-Reasoning-2512": NO_FIELD,
    "llama.cpp: 5424 Apertus-8B-Instruct": LAST_MARK,
    "llama.cpp: 5917 mistralai-Mistral-Nemo-Instruct-2407": LATE_ID,
    "llama.cpp: 5951 meetkai-functionary-medium-v3.2": RECIPIENT,
    "llama.cpp: 5952 meetkai-functionary-medium-v3.2": RECIPIENT,
}

CLOSED = "where nothing switches thoughts off, they stand in the prompt, empty"

# Prompts that do not end like llama.cpp's.
ASKED_OTHERWISE = {
    "llama.cpp: 5270 LFM2.5-8B-A1B": CLOSED,
    "llama.cpp: 5276 LFM2.5-8B-A1B": CLOSED,
    "llama.cpp: 5431 Apertus-8B-Instruct": THOUGHTS_STAY,
}


def reader_of(case: Case, pieces: Sequence[str]) -> AnswerReader:
    """A reader after all pieces; checks that its parts add up."""
    form, new_id = template_of(case.template)[1], map("id{}".format, count()).__next__
    reader = AnswerReader(form, offered(case), thinks=thinks(case), continues=case.continues, new_id=new_id)
    parts = [part for piece in pieces for part in reader.push(piece)] + reader.finish()
    for kind, whole in (("thought", reader.thoughts), ("text", reader.text)):
        assert "".join(part.text for part in parts if part.kind == kind) == whole
    calls = [[part.id, part.text, ""] for part in parts if part.kind == "call"]
    for part in parts:
        if part.kind == "arguments":
            calls[part.index][2] += part.text
    assert calls == [[call.id, call.name, call.arguments] for call in reader.calls]
    return reader


def found(case: Case, pieces: Sequence[str]) -> Json:
    """The parsed message, in the form of the case."""
    reader, form = reader_of(case, pieces), template_of(case.template)[1]
    thoughts, text = reader.thoughts, reader.text
    if case.continues:  # the case has the whole message
        last = case.messages[-1]
        thoughts = (last.get("reasoning_content", "") if form.thoughts else "") + thoughts
        text = text if thinks(case) else last["content"] + text
    if case.unparsed and form.thoughts and (thoughts or thinks(case)):
        thoughts, text = "", f"{form.thoughts.opening}{thoughts}{form.thoughts.closing}{text}"
    return {
        "thoughts": thoughts.strip(),
        "text": text.strip(),
        "calls": [(call.name, value_of(call.arguments)) for call in reader.calls],
        "ids": [call.id for call in reader.calls],
    }


def close_to_marks(case: Case, text: str) -> str:
    """The text without whitespace at thought tags, which does not belong to thoughts."""
    thoughts = template_of(case.template)[1].thoughts
    for mark in (thoughts.opening, thoughts.closing) if thoughts else ():
        text = mark.join(part.strip() for part in text.split(mark))
    return text


def wanted(case: Case, of: Json) -> Json:
    """The case's expected message; fields that it leaves open are taken from `of`."""
    want = dict(case.wanted)
    if case.unparsed:
        want["text"] = close_to_marks(case, want["text"])
    if len(want["ids"]) == len(of["ids"]):
        want["ids"] = [a if a is not None else b for a, b in zip(want["ids"], of["ids"], strict=True)]
    return want


def splits(text: str, most: int | None = None) -> Iterator[Sequence[str]]:
    """The whole text, the text in two pieces cut at every position (or at about `most` positions), and its
    characters."""
    yield text
    for at in range(1, len(text), max(1, len(text) // most) if most else 1):
        yield text[:at], text[at:]


def test_the_cases_are_all_there() -> None:
    """All runs of llama.cpp's 425 cases, some with three templates; and the numbers that are read here."""
    data = json.loads((DATA / FILES["llama.cpp"]).read_text(encoding="utf-8"))
    assert len(data["cases"]) == 463 and len({case["line"] for case in data["cases"]}) == 425
    n = {whose: sum(case.name.startswith(whose) for case in CASES) for whose in FILES}
    assert n == {"llama.cpp": 236, "ollama": 198, "vllm": 55}
    names = {case.name for case in CASES}
    assert len(names) == len(CASES) and {*OTHERWISE, *COMES_BACK_OTHERWISE, *ASKED_OTHERWISE} <= names


def with_mark(case: Case) -> Any:
    """The inner loop runs only short answers of our families."""
    is_quick = case.name.startswith("llama.cpp") and case.template not in MORE and len(case.input) <= 200
    return pytest.param(case, id=case.name, marks=() if is_quick else pytest.mark.exhaustive)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [with_mark(case) for case in CASES])
def test_an_answer_is_the_message_that_others_read(case: Case) -> None:
    try:
        whole = found(case, (case.input,))
    except HybridError as error:
        assert case.name in OTHERWISE, str(error)
        return
    for pieces in splits(case.input, 12):
        assert found(case, pieces) == whole, pieces
    assert (whole != wanted(case, whole)) == (case.name in OTHERWISE), (whole, case.wanted)


@pytest.mark.slow
@pytest.mark.matrix
def test_an_answer_that_is_cut_anywhere_is_the_same_message() -> None:
    for case in CASES:
        if case.name not in OTHERWISE:
            whole = found(case, (case.input,))
            assert all(found(case, pieces) == whole for pieces in splits(case.input)), case.name


COME_BACK = [case for case in CASES if case.reconstructs and OTHERWISE.get(case.name) != ONLY_ITS_OWN]


@pytest.mark.parametrize("case", COME_BACK, ids=lambda case: case.name)
def test_a_message_that_comes_back_is_written_as_the_model_wrote_it(case: Case) -> None:
    """llama.cpp's expect_reconstruction: the rendered conversation begins with the prompt and the answer."""
    message = message_of(reader_of(case, (case.input,)))
    more = [{"role": "tool", "tool_call_id": call["id"], "content": "42"} for call in message.get("tool_calls", [])]
    whole = prompt_of(case, [message, *(more or [{"role": "user", "content": "Go on."}])]).text
    is_same = whole.startswith(prompt_of(case).text + case.input)
    assert is_same != (case.name in COMES_BACK_OTHERWISE), whole


ASKED = [case for case in CASES if case.asked and OTHERWISE.get(case.name) != ONLY_ITS_OWN]


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.name)
def test_a_prompt_ends_as_llama_cpp_has_it(case: Case) -> None:
    """Except whitespace at thought tags that we write ourselves."""
    text, end = close_to_marks(case, prompt_of(case).text), close_to_marks(case, case.asked)
    assert text.endswith(end) != (case.name in ASKED_OTHERWISE), text
