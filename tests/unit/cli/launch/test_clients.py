"""Settings of clients, read by the parsers of their formats."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hybrid.cli.launch.clients import CLIENTS
from hybrid.cli.launch.found_server import FoundServer
from hybrid.cli.launch.settings_files import JSONSettings

NAME = 'org/na"me:Q4_K_M'
FULL = FoundServer("http://box:8080", NAME, 65536, "secret", True)
BARE = FoundServer("http://127.0.0.1:8080", "tiny")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def written(name: str, server: FoundServer) -> dict[str, Any]:
    """The new files of a client by name, parsed."""
    parsers = {".json": json.loads, ".toml": tomllib.loads, ".yaml": yaml.safe_load, ".yml": yaml.safe_load}
    return {file.path.name: parsers[file.path.suffix](file.merged("")) for file in CLIENTS[name].files(server)}


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("server", [FULL, BARE], ids=["full", "bare"])
def test_every_client_gets_address_model_and_key(name: str, server: FoundServer, home: Path) -> None:
    """All of them are in its file, or in the variables that the file needs beside it."""
    client, server = CLIENTS[name], replace(server, model="org/name:Q4_K_M")
    variables, words = client.after(server)
    told = json.dumps([written(name, server), dict(variables), list(words)])
    assert server.model in told and server.url in told and (server.key or "none") in told + "none" * (name == "codex")
    assert all(file.path.is_relative_to(home) for file in client.files(server))
    if not client.by_file:
        told = json.dumps([dict(client.variables(server)), list(client.arguments(server))])
        assert server.url in told and server.model in told
    words = [*client.arguments(server), *client.after(server)[1]]
    assert not [word for word in words if "secret" in word], "everybody sees the arguments of a process"
    assert client.program and client.page.startswith("https://")


def test_claude() -> None:
    variables = CLIENTS["claude"].variables(FULL)
    assert variables["ANTHROPIC_BASE_URL"] == "http://box:8080", "it adds /v1/messages"
    assert variables["ANTHROPIC_AUTH_TOKEN"] == "secret" and variables["ANTHROPIC_API_KEY"] == ""
    assert {value for name, value in variables.items() if name.endswith("_MODEL")} == {NAME}
    assert variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "65536"
    bare = CLIENTS["claude"].variables(BARE)
    assert bare["ANTHROPIC_AUTH_TOKEN"] == "none" and "CLAUDE_CODE_AUTO_COMPACT_WINDOW" not in bare
    assert written("claude", FULL) == {"settings.json": {"env": variables}}


def test_codex(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    provider = {
        "name": "hybrid",
        "base_url": "http://box:8080/v1",
        "wire_api": "responses",
        "env_key": "HYBRID_API_KEY",
    }
    wanted = {
        "model": NAME,
        "model_provider": "hybrid",
        "model_context_window": 65536,
        "model_providers": {"hybrid": provider},
    }
    assert written("codex", FULL) == {"hybrid.config.toml": wanted}
    words = list(CLIENTS["codex"].arguments(FULL))
    assert words[::2] == ["-c"] * (len(words) // 2)
    assert tomllib.loads("\n".join(words[1::2])) == wanted, "the same on its command line"
    assert CLIENTS["codex"].variables(FULL) == {"HYBRID_API_KEY": "secret"} and not CLIENTS["codex"].variables(BARE)
    assert CLIENTS["codex"].after(FULL)[1] == ("--profile", "hybrid")
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    assert CLIENTS["codex"].files(BARE)[0].path == tmp_path / "elsewhere" / "hybrid.config.toml"


def test_opencode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = json.loads(CLIENTS["opencode"].variables(FULL)["OPENCODE_CONFIG_CONTENT"])
    provider = values["provider"]["hybrid"]
    assert values["model"] == f"hybrid/{NAME}" and provider["npm"] == "@ai-sdk/openai-compatible"
    assert provider["options"] == {"baseURL": "http://box:8080/v1", "apiKey": "secret"}
    model = provider["models"][NAME]
    assert model["limit"] == {"context": 65536, "output": 16384} and "image" in model["modalities"]["input"]
    bare = json.loads(CLIENTS["opencode"].variables(BARE)["OPENCODE_CONFIG_CONTENT"])
    assert bare["provider"]["hybrid"]["models"] == {"tiny": {"name": "tiny"}}
    assert written("opencode", FULL) == {"opencode.json": values}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert CLIENTS["opencode"].files(BARE)[0].path == tmp_path / "xdg" / "opencode" / "opencode.json"


def test_the_others() -> None:
    aider = written("aider", FULL)
    assert aider[".aider.conf.yml"]["model"] == f"openai/{NAME}"
    assert aider[".aider.model.metadata.json"][f"openai/{NAME}"]["max_input_tokens"] == 65536
    assert [*written("aider", BARE)] == [".aider.conf.yml"]
    goose = written("goose", FULL)["config.yaml"]
    assert goose["GOOSE_CONTEXT_LIMIT"] == 65536 and goose["OPENAI_HOST"] == "http://box:8080"
    assert "OPENAI_API_KEY" not in goose and CLIENTS["goose"].after(FULL)[0] == {"OPENAI_API_KEY": "secret"}
    (model,) = written("continue", FULL)["hybrid.yaml"]["models"]
    assert (model["model"], model["apiBase"], model["apiKey"]) == (NAME, "http://box:8080/v1", "secret")
    assert model["capabilities"] == ["tool_use", "image_input"]
    assert model["defaultCompletionOptions"] == {"contextLength": 65536}
    qwen = written("qwen", FULL)["settings.json"]
    (model,) = qwen["modelProviders"]["openai"]
    assert qwen["env"][model["envKey"]] == "secret" and qwen["model"]["name"] == model["id"] == NAME
    provider = written("pi", FULL)["models.json"]["providers"]["hybrid"]
    assert provider["models"] == [{"id": NAME, "input": ["text", "image"], "contextWindow": 65536, "maxTokens": 16384}]


def test_other_models_of_a_client_stay() -> None:
    old = {"modelProviders": {"openai": [{"id": "gpt", "envKey": "OPENAI_API_KEY"}]}, "theme": "dark"}
    (settings,) = CLIENTS["qwen"].files(BARE)
    assert isinstance(settings, JSONSettings)
    new = json.loads(settings.merged(json.dumps(old)))
    assert [model["id"] for model in new["modelProviders"]["openai"]] == ["tiny", "gpt"] and new["theme"] == "dark"
