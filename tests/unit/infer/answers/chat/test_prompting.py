"""OpenAI conversations with tools and thoughts, in the templates of real models."""

from typing import Any

import pytest
from chat_templates import TEMPLATES, call, form, template

from hybrid.infer.answers.chat.format import ChatFormat
from hybrid.infer.answers.chat.probing import probed
from hybrid.infer.answers.chat.prompting import ChatPrompt, chat_prompt, message_of
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.tools import ToolChoice, tools_of
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.quant.ggml.errors import TemplateError, UsageError

(WEATHER,) = tools_of(
    [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "Of a city.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                },
            },
        }
    ]
)
ASKED = [{"role": "user", "content": "Rome and Oslo?"}]
CALLED = [
    *ASKED,
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Both.",
        "tool_calls": [
            call("weather", {"city": "Rome", "days": 2}, "call_abcdefghijk"),
            call("weather", {"city": 'Oslo "N"'}, "call_2"),
        ],
    },
    {"role": "tool", "tool_call_id": "call_abcdefghijk", "content": '{"t": 30}'},
    {"role": "tool", "tool_call_id": "call_2", "content": "cold"},
]


def prompt(name: str, messages: list[dict[str, Any]], **more: Any) -> ChatPrompt:
    return chat_prompt(template(name), form(name), messages, **more)


def answer(name: str, messages: list[dict[str, Any]], **more: Any) -> str:
    """The rendered text after the user's first message."""
    return prompt(name, messages, **more).text.partition("Rome and Oslo?")[2]


HERMES = """<tool_call>
{"name": "weather", "arguments": {"city": "Rome", "days": 2}}
</tool_call>
<tool_call>
{"name": "weather", "arguments": {"city": "Oslo \\"N\\""}}
</tool_call>"""
RESPONSES = '<tool_response>\n{"t": 30}\n</tool_response>\n<tool_response>\ncold\n</tool_response>'
QWEN_XML = """<tool_call>
<function=weather>
<parameter=city>
Rome
</parameter>
<parameter=days>
2
</parameter>
</function>
</tool_call>
<tool_call>
<function=weather>
<parameter=city>
Oslo "N"
</parameter>
</function>
</tool_call>"""

ROUNDS = {
    "ibm-granite-granite-4.0": "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"
    + HERMES
    + "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>\n"
    + RESPONSES
    + "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    "Qwen3.5-4B": "<|im_end|>\n<|im_start|>assistant\n<think>\nBoth.\n</think>\n\n"
    + QWEN_XML
    + "<|im_end|>\n<|im_start|>user\n"
    + RESPONSES
    + "<|im_end|>\n<|im_start|>assistant\n<think>\n",
    "NVIDIA-Nemotron-Nano-v2": '\n<SPECIAL_11>Assistant\n<TOOLCALL>[{"name": "weather", "arguments": {"city": "Rome", '
    '"days": 2}}, {"name": "weather", "arguments": {"city": "Oslo \\"N\\""}}]</TOOLCALL>\n<SPECIAL_12>\n'
    '<SPECIAL_11>User\n<TOOL_RESPONSE>[{"t": 30}, cold]</TOOL_RESPONSE><SPECIAL_11>Assistant\n<think>\n',
    "LFM2.5-8B-A1B": "<|im_end|>\n<|im_start|>assistant\n<think>Both.</think>"
    '<|tool_call_start|>[weather(city="Rome", days=2), weather(city="Oslo \\"N\\"")]<|tool_call_end|><|im_end|>\n'
    '<|im_start|>tool\n{"t": 30}<|im_end|>\n<|im_start|>tool\ncold<|im_end|>\n<|im_start|>assistant\n',
    "ai21labs-Jamba-Mini-1.7": "<|eom|><|bom|><|assistant|> <tool_calls>[\n"
    '    {"name": "weather", "arguments": {"city": "Rome", "days": 2}},\n'
    '    {"name": "weather", "arguments": {"city": "Oslo \\"N\\""}}\n]</tool_calls><|eom|>'
    '<|bom|><|tool|> (weather){"t": 30}<|eom|><|bom|><|tool|> (weather)cold<|eom|><|bom|><|assistant|>',
    "mistralai-Mistral-Nemo-Instruct-2407": '[/INST][TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome", '
    '"days": 2}, "id": "098b9709a"}, {"name": "weather", "arguments": {"city": "Oslo \\"N\\""}, "id": "1b68f83fa"}]'
    '</s>[TOOL_RESULTS]{"content": {"t": 30}, "call_id": "098b9709a"}[/TOOL_RESULTS]'
    '[TOOL_RESULTS]{"content": cold, "call_id": "1b68f83fa"}[/TOOL_RESULTS]',
    "google-gemma-2-2b-it": "<end_of_turn>\n<start_of_turn>model\n"
    + HERMES
    + "<end_of_turn>\n<start_of_turn>user\n"
    + RESPONSES
    + "<end_of_turn>\n<start_of_turn>model\n",
    "microsoft-Phi-3.5-mini-instruct": "<|end|>\n<|assistant|>\n"
    + HERMES
    + "<|end|>\n<|user|>\n"
    + RESPONSES
    + "<|end|>\n<|assistant|>\n",
    "meta-llama-Llama-3.2-3B-Instruct": "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "weather", "parameters": {"city": "Rome", "days": 2}}<|eot_id|>'
    '<|start_header_id|>ipython<|end_header_id|>\n\n"{\\"t\\": 30}"<|eot_id|>'
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "weather", "parameters": {"city": "Oslo \\"N\\""}}<|eot_id|>'
    '<|start_header_id|>ipython<|end_header_id|>\n\n"cold"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
}


@pytest.mark.parametrize("name", ROUNDS)
def test_two_calls_and_their_results(name: str) -> None:
    assert answer(name, CALLED, tools=[WEATHER]) == ROUNDS[name]
    assert "Of a city." in prompt(name, CALLED, tools=[WEATHER]).text


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("Qwen-Qwen3-0.6B", "<|im_end|>"),
        ("Qwen3.5-4B", "<|im_end|>"),
        ("LFM2.5-8B-A1B", "<|im_end|>"),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "<|im_end|>"),
        ("ByteDance-Seed-OSS", "<seed:eos>"),
        # no thoughts, or their templates drop earlier thoughts
        ("ibm-granite-granite-4.0", "<|end_of_text|>"),
        ("ai21labs-Jamba-Mini-1.7", "<|eom|>"),
        ("tiiuae-Falcon-H1-7B-Instruct", "<|im_end|>"),
        ("tiiuae-Falcon-H1-Tiny-Multilingual-100M-Instruct", "<|im_end|>"),
        ("HuggingFaceTB-SmolLM3-3B-tools", "<|im_end|>"),
        ("google-gemma-2-2b-it", "<end_of_turn>"),
    ],
)
def test_an_answer_is_a_message_that_comes_back(name: str, end: str) -> None:
    """A rendered answer is read back as the same answer."""
    ids = iter(["call_abcdefghijk", "call_2"])
    asked = prompt(name, ASKED, tools=[WEATHER])
    reader = AnswerReader(form(name), [WEATHER], thinks=asked.thinks, new_id=lambda: next(ids))
    whole = prompt(name, CALLED[:2], tools=[WEATHER])
    rendered = template(name).render(whole.messages, add_generation_prompt=False, **whole.variables)
    assert rendered.startswith(asked.text)
    reader.push(rendered[len(asked.text) :].partition(end)[0])
    reader.finish()
    thoughts = form(name).thoughts
    if thoughts is not None and thoughts.field is not None:
        assert message_of(reader) == CALLED[1]
    else:
        assert message_of(reader) == {key: value for key, value in CALLED[1].items() if key != "reasoning_content"}


def test_a_message_of_text_alone() -> None:
    reader = AnswerReader(form("ibm-granite-granite-4.0"), [WEATHER])
    assert message_of(reader) == {"role": "assistant", "content": ""}
    reader.push("Warm.")
    reader.finish()
    assert message_of(reader) == {"role": "assistant", "content": "Warm."}


@pytest.mark.parametrize(
    ("name", "on", "off"),
    [
        ("Qwen3.5-4B", "<think>\n", "<think>\n\n</think>\n\n"),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "<think>\n", "<think></think>"),
        ("NVIDIA-Nemotron-Nano-v2", "<think>\n", "<think></think>"),
        ("Qwen-Qwen3-0.6B", "", "<think>\n\n</think>\n\n"),
        ("Qwen-QwQ-32B", "<think>\n", "<think>\n</think>"),
        ("ai21labs-Jamba-Reasoning-3B", "<think>\n", "<think>\n\n</think>\n\n"),  # no switch: we close the thoughts
        ("LFM2.5-8B-A1B", "", "<think>\n\n</think>\n\n"),
        ("LFM2.5-Instruct", "", "<think>\n\n</think>\n\n"),
        ("ByteDance-Seed-OSS", "", "<seed:think>\n\n</seed:think>\n\n"),
        ("HuggingFaceTB-SmolLM3-3B-tools", "", "<think>\n\n</think>\n"),
        ("google-gemma-4-31B-it", "", "<|channel>thought\n<channel|>"),
        ("ibm-granite-granite-3.3-2B-Instruct", "", ""),
    ],
)
def test_thoughts_on_and_off(name: str, on: str, off: str) -> None:
    """The text after the answer's header, and whether the answer begins inside thoughts."""
    header = prompt(name, ASKED, think=True).text.removesuffix(on)
    header = header[header.rfind("Oslo?") :]
    for think, expected in ((True, on), (False, off)):
        found = prompt(name, ASKED, think=think)
        assert found.text.endswith(header + expected)
        assert found.thinks == (bool(on) and think)


def test_words_that_switch_thoughts_are_not_shown_to_the_model() -> None:
    spoken = [{"role": "system", "content": "Be brief."}, *ASKED]
    assert "Be brief.\n\n<SPECIAL_11>User" in prompt("NVIDIA-Nemotron-Nano-v2", spoken, think=False).text
    assert "no_think" not in prompt("NVIDIA-Nemotron-Nano-v2", spoken, think=False).text
    assert prompt("NVIDIA-Nemotron-Nano-v2", spoken, think=False).messages[0] == {
        "role": "system",
        "content": "Be brief.\n\n/no_think",
    }
    assert "Reasoning Mode: /no_think" in prompt("HuggingFaceTB-SmolLM3-3B", ASKED, think=False).text
    thinking = prompt("ibm-granite-granite-3.3-2B-Instruct", ASKED, think=True).text
    assert "<think></think>" in thinking  # the format that it tells the model to use
    assert "<think>" not in prompt("ibm-granite-granite-3.3-2B-Instruct", ASKED, think=False).text


def test_thoughts_where_there_are_none() -> None:
    assert prompt("ibm-granite-granite-4.0", ASKED, think=False) == prompt("ibm-granite-granite-4.0", ASKED)
    with pytest.raises(UsageError, match="thoughts cannot be switched on"):
        prompt("ibm-granite-granite-4.0", ASKED, think=True)


def test_what_a_user_writes_opens_no_thoughts() -> None:
    assert not prompt("Qwen-Qwen3-0.6B", [{"role": "user", "content": "what is <think>"}]).thinks


def test_thoughts_come_back_under_the_name_of_the_template() -> None:
    for name in ("reasoning_content", "reasoning", "thinking"):
        answered = [*ASKED, {"role": "assistant", "content": "Warm.", name: "Both."}]
        assert "<think>\nBoth.\n</think>\n\nWarm." in prompt("Qwen3.5-4B", answered).text
        assert "<think>Both.</think>Warm." in prompt("LFM2.5-8B-A1B", answered).text
        assert "Both." not in prompt("ibm-granite-granite-4.0", answered).text


def test_a_choice_of_none_shows_no_tools_until_some_were_called() -> None:
    for name in ("ibm-granite-granite-4.0", "google-gemma-2-2b-it"):
        none = ToolChoice("none")
        assert prompt(name, ASKED, tools=[WEATHER], choice=none) == prompt(name, ASKED)
        assert prompt(name, CALLED, tools=[WEATHER], choice=none) == prompt(name, CALLED, tools=[WEATHER])


def test_tools_that_the_template_does_not_take_are_described() -> None:
    spoken = [{"role": "system", "content": "Be brief."}, *ASKED]
    text = prompt("microsoft-Phi-3.5-mini-instruct", spoken, tools=[WEATHER]).text
    tool = '{"type": "function", "function": {"name": "weather", "description": "Of a city.", '
    assert f"<|system|>\nBe brief.\n\nYou can call tools. They are, one JSON object per line:\n<tools>\n{tool}" in text
    # Gemma 2 has no system role: the system prompt begins the user's message
    text = prompt("google-gemma-2-2b-it", spoken, tools=[WEATHER]).text
    assert "<start_of_turn>user\nBe brief.\n\nYou can call tools." in text
    assert text.endswith("</tool_response>.\n\nRome and Oslo?<end_of_turn>\n<start_of_turn>model\n")
    # this template silently drops the system prompt
    deaf = ChatTemplate("{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    assert "You can call tools." in chat_prompt(deaf, probed(deaf), spoken, tools=[WEATHER]).text
    silent = ChatTemplate("nothing")
    with pytest.raises(TemplateError, match="leaves out the tools' description"):
        chat_prompt(silent, probed(silent), spoken, tools=[WEATHER])


def test_what_the_user_says_behind_results_stands_with_them_where_roles_alternate() -> None:
    text = prompt("google-gemma-2-2b-it", [*CALLED, {"role": "user", "content": "And Bergen?"}], tools=[WEATHER]).text
    assert text.endswith("cold\n</tool_response>\nAnd Bergen?<end_of_turn>\n<start_of_turn>model\n")


def test_tools_without_a_description_or_parameters() -> None:
    (bare,) = tools_of([{"type": "function", "function": {"name": "now"}}])
    hermes = prompt("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ASKED, tools=[bare])
    assert '"name": "now"' in hermes.text
    granite = prompt("ibm-granite-granite-4.0", ASKED, tools=[bare])
    assert '<tools>\n{"type": "function", "function": {"name": "now"}}\n</tools>' in granite.text


def test_a_result_that_nobody_asked_for() -> None:
    asked = [*ASKED, {"role": "tool", "tool_call_id": "other", "name": "weather", "content": "cold"}]
    assert "<|tool|> (weather)cold" in prompt("ai21labs-Jamba-Mini-1.7", asked).text
    del asked[1]["name"]
    assert "<|tool|> cold" in prompt("ai21labs-Jamba-Mini-1.7", asked).text


def test_documents_and_other_variables() -> None:
    documents = [{"title": "Rome", "text": "It is warm."}]
    found = prompt("ibm-granite-granite-4.0", ASKED, documents=documents)
    assert '{"title": "Rome", "text": "It is warm."}' in found.text
    assert found.variables["documents"] == documents
    with pytest.raises(UsageError, match="template does not use documents"):
        prompt("Qwen3.5-4B", ASKED, documents=documents)
    answered = [*ASKED, {"role": "assistant", "content": "It"}]
    with pytest.raises(UsageError, match="template does not use documents"):
        prompt("Qwen3.5-4B", answered, documents=documents, continues=True)
    assert "Rome" in prompt("ibm-granite-granite-4.0", answered, documents=documents, continues=True).text
    smol = "HuggingFaceTB-SmolLM3-3B-tools"
    assert "kq tool" in prompt(smol, ASKED, variables={"xml_tools": ["kq tool"]}).text  # the client's own
    assert "kq tool" not in prompt(smol, ASKED, tools=[WEATHER], variables={"xml_tools": ["kq tool"]}).text
    dated = prompt("meta-llama-Llama-3.2-3B-Instruct", ASKED, variables={"date_string": "1 Jan 2000"})
    assert "Today Date: 1 Jan 2000" in dated.text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "x"}, r"messages/1/role is no text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, r"messages/1/content is neither a text nor a list of"),
        ({"role": "user", "content": 5}, r"messages/1/content is neither a text nor"),
        ({"role": "assistant", "tool_calls": "x"}, r"messages/1/tool_calls is no list"),
        ({"role": "assistant", "tool_calls": ["x"]}, r"messages/1/tool_calls/0 is no call: expected"),
        (
            {"role": "assistant", "tool_calls": [call("f", {}) | {"function": {"name": "f", "arguments": [1]}}]},
            r"messages/1/tool_calls/0/function/arguments is neither text nor an object. Send a JSON object as text",
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "f", "arguments": '{"a":' * 150 + "1" + "}" * 150}}],
            },
            r"messages/1/tool_calls/0/function/arguments is nested deeper than 100",
        ),
    ],
)
def test_messages_that_are_none_of_openais(message: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as error:
        prompt("ibm-granite-granite-4.0", [*ASKED, message])
    assert "\n" not in str(error.value)


def test_messages_of_all_usual_shapes() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": "Rome?", "name": "Ada"},
        {"role": "assistant", "tool_calls": [call("f", {}) | {"function": {"name": "f", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "call00001", "content": None},
        {"role": "assistant", "content": None},
    ]
    assert prompt("ibm-granite-granite-4.0", messages).messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rome?", "name": "Ada"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "f", "arguments": {}}}],
        },
        {"role": "tool", "content": "", "tool_call_id": "call00001", "name": "f"},
        {"role": "assistant", "content": ""},
    ]


CUT = '{"city": "Rome", "days": '


NEEDS_MORE = {"fireworks-ai-llama-3-firefunction-v2"}  # variables that conversations never have


@pytest.mark.parametrize("name", sorted({path.stem for path in TEMPLATES.glob("*.jinja")} - NEEDS_MORE))
def test_arguments_that_were_cut_off_are_text(name: str) -> None:
    """Every template takes a cut call that a client sends back."""
    result = {"role": "tool", "tool_call_id": "call00001", "content": "It was cut off."}
    for text in (CUT, CUT + "2, nonsense", "[1]", '{"a":' * 10**5, "\ud800", "null"):
        cut = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": text}}
        talk = [*ASKED, {"role": "assistant", "content": "", "tool_calls": [cut]}, result]
        rest = prompt(name, talk, tools=[WEATHER]).text.partition("Rome and Oslo?")[2]
        assert "It was cut off." in rest and ("Rome" in rest or text not in (CUT, CUT + "2, nonsense"))


def test_how_a_cut_call_is_written() -> None:
    cut = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": '{"a": "b'}}
    message = {"role": "assistant", "content": None, "tool_calls": [cut]}
    hermes = answer("Qwen-Qwen2.5-7B-Instruct", [*ASKED, message])
    assert '{"name": "f", "arguments": "{\\"a\\": \\"b"}' in hermes
    xml = answer("Qwen3-Coder", [*ASKED, message])
    assert '<function=f>\n<parameter=arguments>\n{"a": "b\n</parameter>\n</function>' in xml
    as_text = answer("google-gemma-2-2b-it", [*ASKED, message])
    assert '{"name": "f", "arguments": "{\\"a\\": \\"b"}' in as_text


def test_a_refusal_is_the_first_one() -> None:
    with pytest.raises(TemplateError, match="System message must be at the beginning"):
        prompt("Qwen3.5-4B", [*ASKED, {"role": "system", "content": "Be brief."}])


def test_a_template_without_end_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = ChatTemplate("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
    rendered: list[object] = []
    render = endless.render
    monkeypatch.setattr(
        endless, "render", lambda messages, **more: (rendered.append(messages), render(messages, **more))
    )
    with pytest.raises(TemplateError, match="takes more than 1000000 steps"):
        chat_prompt(endless, ChatFormat(), CALLED, tools=[WEATHER])
    assert len(rendered) == 1
