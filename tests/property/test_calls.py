"""Answers with calls, sampled under their grammar: the arguments of every call fit its schema in every format, and the
same answer comes out alone, in a batch and with guesses."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from chat_vocabulary import CONTROL, MARKS, chat_tokenizer
from test_conformance import SHAPES, tokens

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Job, answer_all
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.chat.call_grammar import answer_grammar
from hybrid.infer.answers.chat.format import (
    FALLBACK,
    CallFormat,
    ChatFormat,
    JsonCall,
    NamedCall,
    PythonCall,
    ThoughtFormat,
    XmlCall,
)
from hybrid.infer.answers.chat.marks import shown_tokens
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.thoughts import ThoughtBudget
from hybrid.infer.answers.chat.tools import Tool, ToolChoice
from hybrid.infer.answers.constraints import Constraint
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.quant.ggml.types import FileType

STRING = {"type": "string", "maxLength": 6}
SCHEMAS: dict[str, dict[str, Any]] = {
    "f": {
        "type": "object",
        "properties": {
            "s": STRING,
            "n": {"type": "integer", "minimum": -5, "maximum": 500},
            "e": {"enum": ["a", "b c"]},
            "u": {"anyOf": [STRING, {"type": "null"}]},
            "m": {"anyOf": [STRING, {"type": "integer", "minimum": 5, "maximum": 99}]},
            "o": {
                "type": "object",
                "properties": {"x": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
                "required": ["x"],
                "additionalProperties": False,
            },
            "d": {"type": "string", "format": "date"},
        },
        "required": ["s", "n", "o"],
    },
    "now": {},
    "g": {"type": "object", "properties": {"p": {"type": "string", "pattern": "^[a-c]{2}$"}, "b": {"type": "boolean"}}},
}
SCHEMAS["now"] = {"type": "object", "properties": {}}
TOOLS = [Tool(name, "", schema, {}) for name, schema in SCHEMAS.items()]
FORMATS = {
    "json": FALLBACK,
    "list": CallFormat("<tool_call>", "<tool_call>[", "]</tool_call>", JsonCall(arguments_key="parameters"), ", "),
    "named": CallFormat("<tool_call>", "", "", NamedCall("<tool_call>", "\n", "</tool_call>"), again="\n"),
    "xml": CallFormat(
        "<tool_call>",
        "",
        "",
        XmlCall(
            "<tool_call>\n<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>"
        ),
        again="\n",
    ),
    "python": CallFormat("<|tool_call_start|>", "<|tool_call_start|>[", "]<|tool_call_end|>", PythonCall(), ", "),
}
CHOICES = [ToolChoice("auto"), ToolChoice("required"), ToolChoice("required", "g")]
TOKENIZER = chat_tokenizer(CONTROL, [*MARKS, "</parameter>", "</function>"])
MOST = 1000


def drawing_of(format: ChatFormat, made: Constraint, seed: int, *, thinks: bool) -> Drawing:
    """Tags and closing brackets and quotes are more likely than other tokens, so that answers end."""
    likely = [*range(len(MARKS) + 7), *(TOKENIZER.encode(c, add_special=False, continues=True)[-1] for c in '"}])\n,')]
    params = SamplingParams(temp=2, top_k=0, top_p=1, min_p=0, seed=seed, logit_bias=dict.fromkeys(likely, 7.0))
    budget = ThoughtBudget(format, TOKENIZER, 5, thinks) if format.thoughts is not None else None
    shown = shown_tokens(format, TOKENIZER)
    return Drawing(
        Sampler(params, TOKENIZER.n_vocab), TOKENIZER, MOST, (), constraint=made.copy(), shown=shown, budget=budget
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name or choice.mode)
@pytest.mark.parametrize("kind", FORMATS)
def test_arguments_fit_their_schema(kind: str, choice: ToolChoice, parallel: bool, thinks: bool) -> None:
    thoughts = ThoughtFormat("<think>", "</think>", is_opened=True) if thinks else None
    format = ChatFormat(thoughts, FORMATS[kind])
    grammar = answer_grammar(format, TOKENIZER, TOOLS, choice, parallel=parallel, thinks=thinks)
    assert grammar is not None
    made = Constraint(grammar, TOKENIZER)
    n_calls = n_whole = 0
    for seed in range(12):
        drawing, rng = drawing_of(format, made, seed, thinks=thinks), np.random.default_rng(seed)
        drawing.begin(())
        while drawing.ended is None:
            drawing.draw(rng.standard_normal(TOKENIZER.n_vocab).astype(np.float32))
        drawing.finish()
        reader = AnswerReader(format, TOOLS, thinks=thinks)
        reader.push(drawing.result.text)
        reader.finish()
        if drawing.ended == "length":
            continue
        n_whole += 1
        for call in reader.calls:
            assert choice.name in (None, call.name)
            value = json.loads(call.arguments)
            jsonschema_rs.validator_for(SCHEMAS[call.name]).validate(value)
        n_calls += len(reader.calls)
        assert reader.calls or choice.mode == "auto", drawing.result.text
        assert parallel or len(reader.calls) <= 1
        assert not reader.calls or (thinks and choice.mode == "auto") or "<tool_call>" not in reader.text
    assert n_whole > 3 and n_calls > 0


@pytest.mark.parametrize("family", ["jamba", "mamba"])
def test_calls_come_out_the_same_alone_in_a_batch_and_with_guesses(
    family: str, random_model: Callable[..., Path]
) -> None:
    """With a thought budget, within and at whose end there are guesses, and forms that force tokens."""
    path = random_model(replace(SHAPES[family], name=f"chat-{family}", n_vocab=400), FileType.Q8_0)
    format = ChatFormat(ThoughtFormat("<think>", "</think>", is_opened=True), FALLBACK)
    with LoadedModel.load(path, n_ctx=160, n_ubatch=64, n_threads=2, n_seq_max=8) as model:
        tokenizer = chat_tokenizer(CONTROL, n_vocab=model.n_vocab)
        assert tokenizer.n_vocab == model.n_vocab
        likely = [*range(11), *(tokenizer.encode(c, add_special=False, continues=True)[-1] for c in '"}a')]
        made = []
        for i in range(8):
            choice = CHOICES[i % 2]
            grammar = answer_grammar(format, tokenizer, TOOLS, choice, thinks=i % 3 > 0)
            assert grammar is not None
            made.append((Constraint(grammar, tokenizer), i % 3 > 0))
        made[5] = (None, True)  # a budget alone

        def asked(i: int) -> dict[str, Any]:
            constraint, thinks = made[i]
            params = SamplingParams(temp=2, top_k=0, top_p=1, seed=i, logit_bias=dict.fromkeys(likely, 4.0))
            return {
                "sampler": Sampler(params, model.n_vocab),
                "constraint": constraint and constraint.copy(),
                "budget": ThoughtBudget(format, tokenizer, (0, 3, 9)[i % 3], thinks),
                "shown": shown_tokens(format, tokenizer),
            }

        def alone(i: int, *, speculate: bool) -> list[int]:
            seq = model.sequence()
            run = generate(seq, tokens(5 + i, i), max_tokens=70, tokenizer=tokenizer, speculate=speculate, **asked(i))
            for _ in run:
                pass
            seq.close(remember=False)
            return run.result.ids

        want = [alone(i, speculate=False) for i in range(8)]
        assert [alone(i, speculate=True) for i in range(8)] == want
        for n_parallel in (8, 3):
            jobs = []
            for i in range(8):
                more = asked(i)
                drawing = Drawing(more.pop("sampler"), tokenizer, 70, (), **more)
                jobs.append(Job(tokens(5 + i, i), drawing, speculate=i % 2 == 0))
            results = answer_all(model, jobs, n_parallel)
            assert [result.ids for result in results] == want
            assert sum(result.forced for result in results) > 0
        ends = {tokenizer.parts(mark)[0] for mark in ("</think>", "<tool_call>")}
        assert all(ends & set(want[i][:12]) for i in range(8) if made[i][1] and len(want[i]) > 11)
