"""What is found in the templates of real models, and that odd and hostile ones are survived."""

from dataclasses import replace

import pytest
from chat_templates import form

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
    """A template that writes tools and results, and calls only as the text they are."""
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
    "meta-llama-Llama-3.1-8B-Instruct": tools(BARE),
    "meta-llama-Llama-3.2-3B-Instruct": tools(BARE),
    "meta-llama-Llama-3.3-70B-Instruct": tools(BARE),
    "HuggingFaceTB-SmolLM3-3B": ChatFormat(replace(THINK, variable="enable_thinking")),
    "HuggingFaceTB-SmolLM3-3B-tools": told(HERMES, replace(THINK, variable="enable_thinking"), "xml_tools"),
    "google-gemma-2-2b-it": ChatFormat(),
    "microsoft-Phi-3.5-mini-instruct": ChatFormat(),
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


@pytest.mark.parametrize("name", FORMATS)
def test_real_templates(name: str) -> None:
    assert form(name) == FORMATS[name]
