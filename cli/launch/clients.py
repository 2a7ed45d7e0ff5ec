"""The programs that `hybrid launch` knows, with their settings. Checked against their documentation in November 2026.

A new client is an entry of `CLIENTS`; `make docs` puts it into docs/clients.md.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .found_server import FoundServer
from .settings_files import JSONSettings, SettingsFile, YAMLSettings

OURS = "hybrid"  # name of the provider in clients' settings
KEY_VARIABLE = "HYBRID_API_KEY"
MOST_OUTPUT = 32_000  # tokens of an answer that clients reserve, at most a quarter of the context


@dataclass(frozen=True)
class LaunchedClient:
    """A program and its settings for a server.

    title      its name
    api        which of the server's APIs it uses, for the documentation
    page       where its documentation says how to install it
    program    its command
    variables  of its environment
    arguments  of its command line, with these variables
    files      that `--write` changes
    after      variables and arguments that it needs after `--write`
    by_file    it has no variables: it runs only after `--write`
    """

    title: str
    api: str
    page: str
    program: str
    files: Callable[[FoundServer], Sequence[SettingsFile]]
    variables: Callable[[FoundServer], Mapping[str, str]] = lambda server: {}
    arguments: Callable[[FoundServer], Sequence[str]] = lambda server: ()
    after: Callable[[FoundServer], tuple[Mapping[str, str], Sequence[str]]] = lambda server: ({}, ())
    by_file: bool = False


def _home(*names: str) -> Path:
    return Path.home().joinpath(*names)


def _config(*names: str) -> Path:
    """A place in the folder of settings: ~/.config, unless XDG_CONFIG_HOME names another one."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(given) if given.startswith("/") else _home(".config")).joinpath(*names)


def _text(value: str) -> str:
    """A text as JSON, TOML and YAML write it."""
    return json.dumps(value, ensure_ascii=False)


def _output(server: FoundServer) -> int:
    """The tokens that a client may reserve for an answer."""
    return min(MOST_OUTPUT, (server.context or 4 * MOST_OUTPUT) // 4)


# --- Claude Code ---
def _claude(server: FoundServer) -> dict[str, str]:
    names = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{kind}_MODEL" for kind in ("OPUS", "SONNET", "HAIKU")))
    return {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_AUTH_TOKEN": server.token,
        "ANTHROPIC_API_KEY": "",
        **dict.fromkeys((*names, "CLAUDE_CODE_SUBAGENT_MODEL"), server.model),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it changes with every request, before everything that could be reused
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "API_TIMEOUT_MS": "3000000",
        **({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(server.context)} if server.context else {}),
    }


def _claude_files(server: FoundServer) -> list[SettingsFile]:
    return [JSONSettings(_home(".claude", "settings.json"), values={"env": _claude(server)})]


# --- Codex ---
def _codex_values(server: FoundServer) -> dict[str, dict[str, str | int]]:
    """The settings at the top of the file, and the provider's."""
    provider = {"name": OURS, "base_url": server.openai, "wire_api": "responses"}
    context = {"model_context_window": server.context} if server.context else {}
    key = {"env_key": KEY_VARIABLE} if server.key else {}
    return {"": {"model": server.model, "model_provider": OURS, **context}, "provider": {**provider, **key}}


def _codex_arguments(server: FoundServer) -> list[str]:
    values = _codex_values(server)
    lines = [f"{key}={json.dumps(value)}" for key, value in values[""].items()]
    lines += [f"model_providers.{OURS}.{key}={json.dumps(value)}" for key, value in values["provider"].items()]
    return [word for line in lines for word in ("-c", line)]


def _codex_files(server: FoundServer) -> list[SettingsFile]:
    values = _codex_values(server)
    lines = [f"{key} = {json.dumps(value)}" for key, value in values[""].items()]
    lines += ["", f"[model_providers.{OURS}]", *(f"{key} = {json.dumps(v)}" for key, v in values["provider"].items())]
    given = os.environ.get("CODEX_HOME", "")
    folder = Path(given) if given else _home(".codex")
    return [SettingsFile(folder / f"{OURS}.config.toml", "\n".join(lines) + "\n")]


def _key_variable(server: FoundServer) -> dict[str, str]:
    return {KEY_VARIABLE: server.key} if server.key else {}


# --- OpenCode ---
def _opencode_values(server: FoundServer) -> dict[str, Any]:
    limit = {"limit": {"context": server.context, "output": _output(server)}} if server.context else {}
    sees = {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}} if server.sees else {}
    return {
        "$schema": "https://opencode.ai/config.json",
        "provider": {
            OURS: {
                "npm": "@ai-sdk/openai-compatible",
                "name": OURS,
                "options": {"baseURL": server.openai, "apiKey": server.token},
                "models": {server.model: {"name": server.model, **limit, **sees}},
            }
        },
        "model": f"{OURS}/{server.model}",
    }


def _opencode_files(server: FoundServer) -> list[SettingsFile]:
    return [JSONSettings(_config("opencode", "opencode.json"), values=_opencode_values(server))]


# --- aider ---
def _aider_files(server: FoundServer) -> list[SettingsFile]:
    name = f"openai/{server.model}"
    keys = {"model": name, "openai-api-base": server.openai, "openai-api-key": server.token}
    files: list[SettingsFile] = [YAMLSettings(_home(".aider.conf.yml"), values=keys)]
    if server.context:
        facts = {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": server.context}
        facts |= {"max_output_tokens": _output(server), "input_cost_per_token": 0, "output_cost_per_token": 0}
        files.append(JSONSettings(_home(".aider.model.metadata.json"), values={name: facts}))
    return files


# --- goose ---
def _goose_values(server: FoundServer) -> dict[str, str | int]:
    return {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": server.model,
        "OPENAI_HOST": server.url,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        **({"GOOSE_CONTEXT_LIMIT": server.context} if server.context else {}),
    }


def _goose_files(server: FoundServer) -> list[SettingsFile]:
    return [YAMLSettings(_config("goose", "config.yaml"), values=_goose_values(server))]


# --- Continue ---
def _continue_files(server: FoundServer) -> list[SettingsFile]:
    abilities = ["tool_use", *(["image_input"] if server.sees else [])]
    text = (
        f"name: {OURS}\nversion: 0.0.1\nschema: v1\nmodels:\n"
        f"  - name: {_text(server.model)}\n    provider: openai\n    model: {_text(server.model)}\n"
        f"    apiBase: {_text(server.openai)}\n    apiKey: {_text(server.token)}\n"
        f"    roles: [chat, edit, apply]\n    capabilities: [{', '.join(abilities)}]\n"
    )
    if server.context:
        text += f"    defaultCompletionOptions:\n      contextLength: {server.context}\n"
    return [SettingsFile(_home(".continue", "models", f"{OURS}.yaml"), text)]


# --- Qwen Code ---
def _qwen(server: FoundServer) -> dict[str, str]:
    return {"OPENAI_API_KEY": server.token, "OPENAI_BASE_URL": server.openai, "OPENAI_MODEL": server.model}


def _qwen_files(server: FoundServer) -> list[SettingsFile]:
    model = {"id": server.model, "name": f"{server.model} ({OURS})", "baseUrl": server.openai, "envKey": KEY_VARIABLE}
    values = {
        "env": {KEY_VARIABLE: server.token},
        "modelProviders": {"openai": [model]},
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": server.model},
    }
    return [JSONSettings(_home(".qwen", "settings.json"), values=values)]


# --- pi ---
def _pi_files(server: FoundServer) -> list[SettingsFile]:
    model: dict[str, Any] = {"id": server.model, "input": ["text", "image"] if server.sees else ["text"]}
    if server.context:
        model |= {"contextWindow": server.context, "maxTokens": _output(server)}
    provider = {"baseUrl": server.openai, "api": "openai-completions", "apiKey": server.token, "models": [model]}
    return [JSONSettings(_home(".pi", "agent", "models.json"), values={"providers": {OURS: provider}})]


CHAT = "OpenAI's `/v1/chat/completions`"
CLIENTS: Mapping[str, LaunchedClient] = {
    "claude": LaunchedClient(
        "Claude Code", "Anthropic's `/v1/messages`", "https://code.claude.com/docs", "claude", _claude_files, _claude
    ),
    "codex": LaunchedClient(
        "Codex", "OpenAI's `/v1/responses`", "https://developers.openai.com/codex", "codex", _codex_files,
        _key_variable, _codex_arguments, lambda server: (_key_variable(server), ("--profile", OURS)),
    ),
    "opencode": LaunchedClient(
        "OpenCode", CHAT, "https://opencode.ai/docs", "opencode", _opencode_files,
        lambda server: {"OPENCODE_CONFIG_CONTENT": json.dumps(_opencode_values(server))},
    ),
    "aider": LaunchedClient(
        "aider", CHAT, "https://aider.chat/docs/install.html", "aider", _aider_files,
        lambda server: {"OPENAI_API_BASE": server.openai, "OPENAI_API_KEY": server.token},
        lambda server: ("--model", f"openai/{server.model}"),
    ),
    "goose": LaunchedClient(
        "goose", CHAT, "https://goose-docs.ai", "goose", _goose_files,
        lambda server: {key: str(value) for key, value in _goose_values(server).items()}
        | {"OPENAI_API_KEY": server.token},
        lambda server: ("session",),
        lambda server: ({"OPENAI_API_KEY": server.token}, ("session",)),  # goose keeps keys elsewhere
    ),
    "continue": LaunchedClient(
        "Continue", CHAT, "https://docs.continue.dev", "cn", _continue_files, by_file=True,
        # its extension reads all files there by itself
        after=lambda server: ({}, ("--config", str(_continue_files(server)[0].path))),
    ),
    "qwen": LaunchedClient(
        "Qwen Code", CHAT, "https://qwenlm.github.io/qwen-code-docs", "qwen", _qwen_files, _qwen,
        lambda server: ("--auth-type", "openai"),
    ),
    "pi": LaunchedClient(
        "pi", CHAT, "https://github.com/earendil-works/pi", "pi", _pi_files, by_file=True,
        after=lambda server: ({}, ("--provider", OURS, "--model", server.model)),
    ),
}  # fmt: skip
