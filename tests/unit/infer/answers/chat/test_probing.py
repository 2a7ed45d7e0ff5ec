"""What probing finds in the templates of real models."""

from dataclasses import replace

import pytest
from chat_templates import SMOLVLM, TEMPLATES, form, template

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
from hybrid.infer.answers.chat.probing import probed, probed_with
from hybrid.infer.answers.chat.renderings import MOST_RENDERINGS, MOST_STEPS, Renderings
from hybrid.infer.text.chat_template import ChatTemplate

HERMES = FALLBACK  # <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>, one per call
QWEN_XML = CallFormat(
    "<tool_call>",
    "",
    "",
    XmlCall("<tool_call>\n<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>"),
    again="\n",
)
PYTHON = CallFormat("<|tool_call_start|>", "<|tool_call_start|>[", "]<|tool_call_end|>", PythonCall(), ", ")
BARE = CallFormat("", "", "", JsonCall(arguments_key="parameters"))
MISTRAL = CallFormat("[TOOL_CALLS]", "", "", NamedCall("[TOOL_CALLS]", "[ARGS]", ""))

THINK = ThoughtFormat("<think>", "</think>")
SWITCHED = replace(THINK, field="reasoning_content", variable="enable_thinking")


def tools(calls: CallFormat, thoughts: ThoughtFormat | None = None) -> ChatFormat:
    """A template that writes tools, calls and results."""
    return ChatFormat(thoughts, calls, True, True, True)


def told(calls: CallFormat, thoughts: ThoughtFormat | None = None, variable: str = "tools") -> ChatFormat:
    """A template that writes tools and results, and calls only as plain text."""
    return ChatFormat(thoughts, calls, True, False, True, variable)


FORMATS = {
    "ai21labs-Jamba-Mini-1.7": tools(
        CallFormat("<tool_calls>", "<tool_calls>[\n    ", "\n]</tool_calls>", JsonCall(), ",\n    ")
    ),
    "ai21labs-Jamba-Reasoning-3B": tools(HERMES, replace(THINK, is_opened=True, field="reasoning_content")),
    "ibm-granite-granite-3.3-2B-Instruct": told(
        CallFormat("<|tool_call|>", "<|tool_call|>[", "]", JsonCall(), ", "), replace(THINK, variable="thinking")
    ),
    "ibm-granite-granite-4.0": tools(HERMES),
    "ibm-granite-granite-4.1": tools(HERMES),
    "tiiuae-Falcon-H1-7B-Instruct": told(HERMES),
    "tiiuae-Falcon-H1-Tiny-Multilingual-100M-Instruct": told(
        CallFormat("<tool_call>", "<tool_call>\n[", "]\n</tool_call>", JsonCall(), ", ")
    ),
    "tiiuae-Falcon-H1R-7B": tools(HERMES, replace(THINK, field="reasoning_content")),
    "NVIDIA-Nemotron-Nano-v2": tools(
        CallFormat("<TOOLCALL>", "<TOOLCALL>[", "]</TOOLCALL>", JsonCall(), ", "),
        replace(THINK, is_opened=True, on="/think", off="/no_think"),
    ),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": tools(QWEN_XML, replace(SWITCHED, is_opened=True)),
    "LFM2-8B-A1B": told(PYTHON),
    "LFM2.5-Instruct": told(PYTHON, THINK),
    "LFM2.5-8B-A1B": told(PYTHON, replace(THINK, field="thinking")),
    "Qwen-Qwen2.5-7B-Instruct": tools(HERMES),
    "Qwen-Qwen3-0.6B": tools(HERMES, SWITCHED),
    "Qwen3-Coder": tools(QWEN_XML),
    "Qwen3.5-4B": tools(QWEN_XML, replace(SWITCHED, is_opened=True)),
    "Qwen3.6-35B-A3B": tools(QWEN_XML, replace(SWITCHED, is_opened=True)),
    "meta-llama-Llama-3.1-8B-Instruct": tools(BARE),
    "meta-llama-Llama-3.2-3B-Instruct": tools(BARE),
    "meta-llama-Llama-3.3-70B-Instruct": tools(BARE),
    "HuggingFaceTB-SmolLM3-3B": ChatFormat(replace(THINK, variable="enable_thinking")),
    "HuggingFaceTB-SmolLM3-3B-tools": told(HERMES, replace(THINK, variable="enable_thinking"), "xml_tools"),
    "google-gemma-2-2b-it": ChatFormat(),
    "microsoft-Phi-3.5-mini-instruct": ChatFormat(),
    "microsoft-Phi-4-mini-instruct": ChatFormat(),  # reads tools, as text, in a field of its own of the system message
    "mistralai-Mistral-Nemo-Instruct-2407": tools(
        CallFormat("[TOOL_CALLS]", "[TOOL_CALLS][", "]", JsonCall(id_key="id"), ", ")
    ),
    "Mistral-Small-3.2-24B-Instruct-2506": tools(
        replace(MISTRAL, call=NamedCall("[TOOL_CALLS]", "[CALL_ID]kq1Ab2Cd3[ARGS]", ""))
    ),
    "mistralai-Ministral-3-14B-Reasoning-2512": tools(MISTRAL, ThoughtFormat("[THINK]", "[/THINK]")),
    "ByteDance-Seed-OSS": tools(
        CallFormat(
            "<seed:tool_call>",
            "",
            "",
            XmlCall(
                "<seed:tool_call>\n<function=",
                ">\n",
                "<parameter=",
                ">",
                "</parameter>\n",
                "</function>\n</seed:tool_call>",
            ),
            again="\n",
        ),
        ThoughtFormat("<seed:think>", "</seed:think>", field="reasoning_content"),
    ),
    "meetkai-functionary-medium-v3.1": tools(
        CallFormat("<function=", "", "", NamedCall("<function=", ">", "</function>"))
    ),
}


# Models that this program does not run: their formats come for free. FALLBACK stands for a template without calls or
# with calls of an unknown kind: Gemma 4 (a notation of its own), gpt-oss and Muse (channels), functionary 3.2
# and Command R+ (no tag), Cohere 2, GigaChat 3, Kimi K3 and Solar (the tag is in every answer), MiniMax M3,
# DeepSeek R1 and V3.1 (write calls, but no tools), Firefunction and the other two of Kimi (refuse these probes).
OPENED = replace(SWITCHED, is_opened=True)
QWQ = replace(THINK, is_opened=True, variable="enable_thinking")
ARG_KEYS = XmlCall("<tool_call>", "", "<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</tool_call>")
LINES = XmlCall("<tool_call>", "\n", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>")


def invokes(begin: str, end: str, mark: str = "", is_text: str = "") -> CallFormat:
    call = XmlCall(
        f'<{mark}invoke name="',
        '">\n',
        f'<{mark}parameter name="',
        f'"{is_text}>',
        f"</{mark}parameter>\n",
        f"</{mark}invoke>\n",
    )
    return CallFormat(begin, f"{begin}\n", end, call, "")


OTHERS = {
    "Apertus-8B-Instruct": tools(
        CallFormat("<|tools_prefix|>", "<|tools_prefix|>[", "]", NamedCall('{"', '": ', "}"), ", "),
        ThoughtFormat("<|inner_prefix|>", "<|inner_suffix|>", variable="enable_thinking"),
    ),
    "Apriel-1.6-15b-Thinker-fixed": tools(
        CallFormat("<tool_calls>", "<tool_calls>[", "]</tool_calls>", JsonCall(id_key="id"), ", "),
        ThoughtFormat("<thinking>", "</thinking>"),
    ),
    "Bielik-11B-v3.0-Instruct": tools(HERMES, OPENED),
    "Cohere2MoE": ChatFormat(
        ThoughtFormat("<|START_THINKING|>", "<|END_THINKING|>", True, "reasoning_content", "reasoning")
    ),
    "CohereForAI-c4ai-command-r-plus-tool_use": ChatFormat(),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": tools(
        CallFormat(
            "<|START_ACTION|>",
            "<|START_ACTION|>[\n    ",
            "\n]",
            JsonCall("", "", "tool_name", "parameters", "tool_call_id"),
            ",\n    ",
        ),
        ThoughtFormat("<|START_THINKING|>", "<|END_THINKING|>", False, "reasoning_content", "enable_thinking"),
    ),
    "GLM-4.6": tools(CallFormat("<tool_call>", "", "", LINES, again="\n"), SWITCHED),
    "GLM-4.7-Flash": tools(CallFormat("<tool_call>", "", "", ARG_KEYS), OPENED),
    "GigaChat3-10B-A1.8B": ChatFormat(),
    "GigaChat3.1-10B-A1.8B": tools(CallFormat("<|function_call|>", "", "", JsonCall("<|function_call|>"))),
    "Kimi-K2-Instruct": ChatFormat(),
    "Kimi-K2-Thinking": ChatFormat(THINK),
    "Kimi-K3": ChatFormat(),
    "MiMo-VL": tools(HERMES),
    "MiniMax-M1": tools(CallFormat("<tool_calls>", "<tool_calls>\n", "</tool_calls>", JsonCall(closing="\n"), "")),
    "MiniMax-M2": tools(
        invokes("<minimax:tool_call>", "</minimax:tool_call>"),
        replace(THINK, is_opened=True, field="reasoning_content"),
    ),
    "MiniMax-M3": ChatFormat(ThoughtFormat("<mm:think>", "</mm:think>", field="reasoning_content")),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": tools(HERMES),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": tools(HERMES),
    "Qwen-QwQ-32B": tools(HERMES, QWQ),
    "Reka-Edge": tools(replace(HERMES, again=""), QWQ),
    "Spark2.5": tools(CallFormat("<tool_call>", "", "", ARG_KEYS), OPENED),
    "StepFun3.5-Flash": tools(replace(QWEN_XML, again=""), replace(OPENED, variable=None)),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ChatFormat(replace(THINK, is_opened=True)),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ChatFormat(QWQ),
    "deepseek-ai-DeepSeek-V3.1": ChatFormat(QWQ),
    "deepseek-ai-DeepSeek-V3.2": tools(
        invokes("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜", ' string="true"'), QWQ
    ),
    "deepseek-ai-DeepSeek-V4": tools(
        invokes("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", ' string="true"'), QWQ
    ),
    "deepseek-ai-DeepSeek-V4-Flash-0731": tools(
        invokes("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", ' string="true"'), QWQ
    ),
    "fireworks-ai-llama-3-firefunction-v2": ChatFormat(),
    "google-gemma-4-31B-it": ChatFormat(
        ThoughtFormat("<|channel>thought", "<channel|>", False, "reasoning_content", "enable_thinking")
    ),
    "google-gemma-4-31B-it-interleaved": ChatFormat(
        ThoughtFormat("<|channel>thought", "<channel|>", False, "reasoning_content", "enable_thinking")
    ),
    "inclusionai-ling-3.0-flash": tools(
        CallFormat(
            "<tool_call>", "", "", replace(LINES, after_value="</arg_value>", closing="\n</tool_call>"), again="\n"
        ),
        OPENED,
    ),
    "llama-cpp-deepseek-r1": ChatFormat(replace(THINK, is_opened=True)),
    "llama-cpp-rwkv-world": ChatFormat(QWQ),
    "meetkai-functionary-medium-v3.2": ChatFormat(),
    "moonshotai-Kimi-K2": tools(
        CallFormat(
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            NamedCall("<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
            "",
        )
    ),
    "muse-glimmer": ChatFormat(
        ThoughtFormat("to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>", field="reasoning_content")
    ),
    "openai-gpt-oss-120b": ChatFormat(
        ThoughtFormat(
            "<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
            field="thinking",
        )
    ),
    "openbmb-MiniCPM5-1B": told(  # it escapes texts with < and &
        CallFormat(
            "<function",
            "",
            "",
            XmlCall('<function name="', '">', '<param name="', '">', "</param>", "</function>"),
            again="\n",
        ),
        OPENED,
    ),
    "poolside-Laguna-S-2.1": tools(CallFormat("<tool_call>", "", "", ARG_KEYS), OPENED),
    "poolside-Laguna-XS-2.1": tools(CallFormat("<tool_call>", "", "", LINES, again="\n"), OPENED),
    "poolside-Laguna-XS.2": tools(CallFormat("<tool_call>", "", "", LINES, again="\n"), OPENED),
    "tencent-Hy3": tools(
        CallFormat(
            "<tool_calls:opensource>",
            "<tool_calls:opensource>\n",
            "</tool_calls:opensource>",
            XmlCall(
                "<tool_call:opensource>",
                "<tool_sep:opensource>\n",
                "<arg_key:opensource>",
                "</arg_key:opensource>\n<arg_value:opensource>",
                "</arg_value:opensource>\n",
                "</tool_call:opensource>\n",
            ),
            "",
        ),
        ThoughtFormat("<think:opensource>", "</think:opensource>", field="reasoning_content"),
    ),
    "unsloth-Apriel-1.5": tools(
        CallFormat("<tool_calls>", "<tool_calls>[", "]</tool_calls>", JsonCall(id_key="id"), ", "),
        ThoughtFormat("<thinking>", "</thinking>"),
    ),
    "unsloth-mistral-Devstral-Small-2507": tools(MISTRAL),
    "upstage-Solar-Open-100B": ChatFormat(ThoughtFormat("<|think|>", "<|end|>", field="reasoning")),
}


TAKE_PARTS = {
    "Apriel-1.6-15b-Thinker-fixed", "Cohere2MoE", "GLM-4.6", "GLM-4.7-Flash", "Kimi-K2-Instruct", "Kimi-K2-Thinking",
    "Kimi-K3", "LFM2.5-8B-A1B", "MiniMax-M1", "MiniMax-M2", "MiniMax-M3", "Mistral-Small-3.2-24B-Instruct-2506",
    "Qwen3.5-4B", "Qwen3.6-35B-A3B", "Reka-Edge", "Spark2.5", "StepFun3.5-Flash", "google-gemma-4-31B-it-interleaved",
    "google-gemma-4-31B-it", "ibm-granite-granite-4.0", "ibm-granite-granite-4.1",
    "mistralai-Ministral-3-14B-Reasoning-2512", "moonshotai-Kimi-K2", "muse-glimmer", "tencent-Hy3",
    "unsloth-Apriel-1.5", "unsloth-mistral-Devstral-Small-2507",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS | OTHERS)
def test_real_templates(name: str) -> None:
    assert form(name) == replace((FORMATS | OTHERS)[name], takes_parts=name in TAKE_PARTS)


def test_a_template_that_needs_parts() -> None:
    found = probed(ChatTemplate(SMOLVLM))
    assert found.takes_parts and found.needs_parts
    echo = probed(ChatTemplate("{% for m in messages %}{{ m.content | tojson }}{% endfor %}"))
    assert not echo.takes_parts, "it writes the list itself"


def test_every_template_is_in_the_table() -> None:
    assert {path.stem for path in TEMPLATES.glob("*.jinja")} == set(FORMATS | OTHERS)


@pytest.mark.parametrize("name", FORMATS)
def test_probing_is_quick(name: str) -> None:
    """A rendering takes some 0.1 ms; a tenth of the bounds is some 10 ms."""
    render = Renderings(template(name))
    probed_with(render)
    assert 0 < render.taken < MOST_RENDERINGS // 2
    assert 0 < render.steps < MOST_STEPS // 2
