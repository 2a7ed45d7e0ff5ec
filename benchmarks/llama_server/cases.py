"""Which of llama.cpp's server tests apply, and the values that its numbers have with our model.

The tests' tiny model is replaced by ours, and so are texts, numbers of tokens and the few templates that llama-server
has built in. Numbers of tokens come only from the tokenizer of the bundled model, not from answers.
"""

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

BOOK = "What is the best book"
SYSTEM, CODE = "You are a coding assistant.", "Write the fibonacci function in c++."


@dataclass(frozen=True)
class Change:
    """Sets the parameters `instead` if those in `where` have these values."""

    where: dict[str, Any]
    instead: dict[str, Any]


def _prompts(key: str, numbers: dict[str, int]) -> list[Change]:
    return [Change({key: text}, {"n_prompt": n}) for text, n in numbers.items()]


_COMPLETIONS = _prompts(
    "prompt",
    {
        "I believe the meaning of life is": 15,
        "Write a joke about AI from a very long prompt which will not be truncated": 25,
    },
)
_CHATS = [
    *_prompts("user_prompt", {"Hey": 13, BOOK: 19, CODE: 34}),
    Change(
        {"user_prompt": [{"type": "text", "text": "What is"}, {"type": "text", "text": "the best book"}]},
        {"n_prompt": 19},
    ),
]
PARAMETERS: dict[str, list[Change]] = {
    "test_completion": _COMPLETIONS,
    "test_completion_stream": _COMPLETIONS,
    "test_chat_completion": [
        *_CHATS,
        Change({"chat_template": "chatml"}, {"n_prompt": 56}),
        Change({"chat_template": "This is not a chat template, it is"}, {"n_prompt": 13}),
    ],
    "test_chat_completion_stream": _CHATS,
    # the context has 208 tokens, see SUBSTITUTIONS: the last sampled token need not fit
    "test_ctx_shift_disabled_short_prompt": [Change({"n_predict": -1}, {"n_token_output": 208 - 6 + 1})],
    "test_rerank_usage": [Change({"n_tokens": 19}, {"n_tokens": 25}), Change({"n_tokens": 26}, {"n_tokens": 30})],
    # prompts are processed in parts of 512 tokens, whatever --batch-size says, and stop at a message's end
    "test_return_progress": [
        Change({"reuse_cache": False}, {"batch_count": 3}),
        Change({"reuse_cache": True}, {"batch_count": 1}),
    ],
}


@dataclass(frozen=True)
class Substitution:
    """Replaces `old` by `new` in a function of a file, which must have `old` exactly `times` times."""

    file: str
    function: str
    old: str
    new: str
    times: int = 1


_SAVED = "test_slot_save_restore"
_CACHED = "test_chat_completion_cached_tokens"
SUBSTITUTIONS = [
    Substitution("test_ctx_shift.py", "create_server", "512", "416"),
    Substitution("test_ctx_shift.py", "test_ctx_shift_enabled", "== 226", "== 169"),
    # 15 and 16 tokens; another prompt is processed from its beginning, and a repeated one not at all
    Substitution("test_slot_save.py", "test_slot_erase", "== 21", "== 15", 2),
    Substitution("test_slot_save.py", _SAVED, "== 21", "== 15"),
    Substitution("test_slot_save.py", _SAVED, "== 84", "== 78", 2),
    Substitution(
        "test_slot_save.py",
        _SAVED,
        "== 6  # only different part is processed\n\n    # Load",
        "== 16  # all\n\n    # Load",
    ),
    Substitution(
        "test_slot_save.py",
        _SAVED,
        "== 6  # only different part is processed\n\n    # For",
        "== 0  # none\n\n    # For",
    ),
    Substitution("test_slot_save.py", _SAVED, "== 1\n", "== 0\n"),
    # our model's BOS
    Substitution("test_completion.py", "test_completion_response_fields", '"<s> "', '"<|startoftext|>"'),
    # a word's token within a text in our tokenizer: sentencepiece puts a space before a text
    Substitution("test_completion.py", "test_logit_bias", '[[" " + tok + " ", -100]', "[[tok, -100]"),
    # a repeated text is fully reused, with its last logits; of another text nothing is, since a recurrent state cannot
    # be cut and a message of 7 tokens gets no checkpoint
    Substitution("test_chat_completion.py", _CACHED, "77, 0)", "23, 0)"),
    Substitution("test_chat_completion.py", _CACHED, "77, 76)", "23, 23)"),
    Substitution("test_chat_completion.py", _CACHED, "77, 51)", "23, 0)"),
    Substitution("test_chat_completion.py", _CACHED, "77, 47)", "23, 0)"),
    # for any encoder: the same text twice has twice the tokens
    Substitution("test_embedding.py", "test_embedding_usage_single", "== n_tokens", "> 2"),
    Substitution("test_embedding.py", "test_embedding_usage_multiple", "== 2 * 9", "% 2 == 0"),
    # parts of a text are joined without separator
    Substitution("test_chat_completion.py", "test_chat_template_assistant_prefill", '"Wh\\n\\nill"', '"Whill"'),
    Substitution("test_chat_completion.py", "test_chat_template", '"<s> <|start', '"<|startoftext|><|start'),
]

# llama-server pretends that a request to one of several models takes 2 s: here it does
_SLOW_TOKENIZE = (
    '"/tokenize", data={"model": model_id, "content": "hello world"}',
    '"/completion", data={"model": model_id, "prompt": "hello", "n_predict": 4000, "ignore_eos": True}',
)
SUBSTITUTIONS += [
    Substitution("test_router.py", "_tokenize", *_SLOW_TOKENIZE),
    Substitution("test_router.py", "test_router_props", 'startswith("b")', 'startswith("hybrid-")'),
]

# what llama-server itself says of our random ranker
for _test in ("test_rerank", "test_rerank_tei_format"):
    SUBSTITUTIONS += [
        Substitution("test_rerank.py", _test, 'most_relevant["index"] == 2', 'most_relevant["index"] == 1'),
        Substitution("test_rerank.py", _test, 'least_relevant["index"] == 3', 'least_relevant["index"] == 2'),
    ]

# skipped upstream, because llama-server fails them
ENABLED = {"test_cache_vs_nocache_prompt"}
MORE_VALUES: list[tuple[str, str, Any]] = [("test_consistent_result_different_batch_size", "temperature", 1.0)]

# tests about the form of the text; in other tests any text of our model is accepted
EXACT_TEXT = ("response_format", "json_schema", "grammar")

# templates that llama-server has built in, by name
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "llama3": "{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    "command-r": "{% for m in messages %}{{ '<|START_OF_TURN_TOKEN|><|' + {'system': 'SYSTEM', 'user': 'USER', "
    "'assistant': 'CHATBOT'}[m.role] + '_TOKEN|>' + m.content + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
}

IMAGES = "images: these models read text"
HUB = "a server downloads nothing for a request"
INI = "a file in another format: see --models-file"
# pattern of a test's name -> why it does not apply; the first match counts
ELSEWHERE = [
    ("*vision*", IMAGES),
    ("*image*", IMAGES),
    ("*mmproj*", IMAGES),
    ("*multimodal*", IMAGES),
    ("test_security.py::test_local_media_file*", IMAGES),
    ("test_router.py::test_router_download_model", HUB),
    ("test_router.py::test_router_remote_preset", HUB),
    ("test_router.py::test_router_delete_model", "a request deletes no file of this machine"),
    ("test_router.py::test_router_reload_models", INI),
    ("test_router.py::test_router_dedup_cache_models", INI),
    ("test_stream.py*", "answers that go on without their client"),
    ("test_mcp_servers.py*", "programs that the server runs for its page"),
    ("test_proxy.py*", "a proxy for its page"),
    ("test_tools_builtin.py*", "files and shells that the server opens to its page"),
    ("test_security.py::test_cors_proxy*", "a proxy for its page"),
    ("test_security.py::test_access_static_assets*", "a page"),
    ("test_basic.py::test_no_ui", "a page"),
    ("test_infill.py::test_with_qwen_model", "a large model of the hub"),
    ("test_lora.py::test_with_big_model", "a large model of the hub"),
    ("test_speculative.py*", "a second model that guesses"),
    ("test_compat_gcp.py*", "the shape of one cloud"),
    ("test_kv_keep_only_active.py*", "lines of llama-server's log"),
    ("test_slot_save.py::test_slot_restore_legacy_token_list", "an older form of llama-server's files"),
]
VARIABLES = (
    "a template has the variables that transformers gives it (no date_string, functions, enable_thinking = true)"
)
ASLEEP = "/metrics is about loaded models, and its rates are averages of all answers"
# behaviour that differs deliberately
DECIDED = [
    ("test_security.py::test_cors*", "pages of other origins are let in by name only (--cors)"),
    ("test_sleep.py::test_server_sleep_read_only_endpoints", ASLEEP),
    ("test_sleep.py::test_server_sleep_metrics_buckets", ASLEEP),
    ("test_metrics.py::test_metrics_disabled", "/metrics is always there, behind the key"),
    ("test_template.py::test_reasoning*DeepSeek*", VARIABLES),
    ("test_template.py::test_reasoning*QwQ*", VARIABLES),
    ("test_template.py::test_reasoning*CohereForAI*", VARIABLES),
    ("test_template.py::test_date*", VARIABLES),
    ("test_basic.py::test_server_model_aliases_and_tags", "a model has one name"),
    ("test_compat_anthropic.py::test_anthropic_empty_messages", "a conversation has a message, as Anthropic's has"),
    ("test_basic.py::test_server_multiple_addresses", "a server has one address, or a socket"),
]
# not run unless the runner was given an encoder checkpoint
ENCODERS = [
    ("test_embedding.py*", "no encoder was given (--encoder)"),
    ("test_metrics.py::test_metrics_embedding*", "no encoder was given (--encoder)"),
]


def why_not(name: str, slow: bool) -> tuple[str, str] | None:
    """(kind of reason, reason) for not running a test, or None; name: FILE::TEST[PARAMETERS]."""
    if slow:
        return "does not apply", "a large model of the hub"
    tables = {"does not apply": ELSEWHERE, "decided otherwise": DECIDED}
    if "SUITE_ENCODER" not in os.environ:
        tables["not run"] = ENCODERS
    for kind, table in tables.items():
        for pattern, reason in table:
            if fnmatchcase(name, pattern):
                return kind, reason
    return None
