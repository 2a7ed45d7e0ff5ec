"""The OpenAPI document: complete and correct, and the server checked against it by schemathesis."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import WAIT, Server

from hybrid.cli.serve.app import ENDPOINTS
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.saving import open_store

pytestmark = pytest.mark.exhaustive

KEY = {"Authorization": "Bearer secret"}
# the model decides about valid values: ranges of samplers, size of the context
BEYOND_SCHEMAS = "positive_data_acceptance"
NO_RESOURCES = "use_after_free,ensure_resource_availability"


@pytest.fixture(scope="module")
def server(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a small context, so that no answer takes long."""
    with LoadedModel.load(files["q8_0"], n_ctx=14, n_seq_max=5, checkpoint_budget=32 << 20) as model:
        store = open_store(model, tmp_path_factory.mktemp("states"), 1 << 30, print)
        store.files.list_all()
        server = Server(model, keys=("secret",), store=store)
        yield server
        server.close()
        store.folder.close()


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    return server.http.get("/openapi.json", headers=KEY).json()


def test_every_route_is_in_it(server: Server, document: Any) -> None:
    told = {(path, method.upper()): one for path, ones in document["paths"].items() for method, one in ones.items()}
    there = [each for each in ENDPOINTS if not each.is_refusal]
    assert {(each.paths[0].replace(":path}", "}"), each.method) for each in there} == set(told)
    for each in there:
        description = told[each.paths[0].replace(":path}", "}"), each.method].get("description", "")
        assert all(path in description for path in each.paths[1:]), "other paths that mean the same"
    assert any(each.is_refusal for each in ENDPOINTS)
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"] and one["responses"]["200"] for one in operations)


def test_schemas_are_those_that_check(document: Any) -> None:
    schemas = document["components"]["schemas"]
    completion = schemas["CompletionRequest"]
    assert completion["required"] == ["prompt"] and completion["additionalProperties"] is True
    assert completion["properties"]["n"]["anyOf"] == [
        {"maximum": 64, "minimum": 1, "type": "integer"},
        {"type": "null"},
    ]
    posted = document["paths"]["/v1/completions"]["post"]
    assert posted["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/CompletionRequest")
    assert set(posted["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    chat = document["paths"]["/api/chat"]["post"]["responses"]["200"]
    assert (
        set(chat["content"]) == {"application/json", "application/x-ndjson"} and "lines of JSON" in chat["description"]
    )
    for path, name in (("/v1/completions", "Error"), ("/v1/messages", "AnthropicError"), ("/api/chat", "OllamaError")):
        refused = document["paths"][path]["post"]["responses"]["400"]["content"]["application/json"]
        assert refused["schema"]["$ref"].endswith(f"/{name}")


def test_keys_are_in_it(document: Any, files: dict[str, Path]) -> None:
    assert document["security"] == [{"bearer": []}, {"header": []}]
    assert document["paths"]["/health"]["get"]["security"] == []
    assert "401" in document["paths"]["/v1/models"]["get"]["responses"]
    with LoadedModel.load(files["q8_0"], n_ctx=14, n_seq_max=4) as model:
        server = Server(model)
        try:
            free = server.http.get("/openapi.json").json()
        finally:
            server.close()
    assert "security" not in free and "securitySchemes" not in free["components"]
    assert "401" not in free["paths"]["/v1/models"]["get"]["responses"]


# they have the many fields of /v1/completions
ALIKE = ["/v1/chat/completions", "/v1/responses", "/completion", "/apply-template", "/page/costs", "/api/chat"]


@pytest.mark.parametrize(
    ("phase", "paths"),
    [
        ("fuzzing", ["--include-path=/v1/completions", "--include-path=/tokenize"]),
        pytest.param("coverage", [f"--exclude-path={path}" for path in ALIKE], marks=pytest.mark.matrix),
        pytest.param("fuzzing", [], marks=pytest.mark.matrix),
    ],
)
def test_schemathesis(server: Server, tmp_path: Path, phase: str, paths: list[str]) -> None:
    """Valid and invalid bodies cause no server error, and no error of another shape."""
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{server.url}/openapi.json"]
    command += ["-H", "Authorization: Bearer secret", "--phases", phase, "-n", "5", "--seed", "1"]
    command += paths
    command += ["--no-shrink", "--continue-on-failure", "--request-timeout", "60", "--suppress-health-check", "all"]
    command += ["--exclude-checks", f"{BEYOND_SCHEMAS},{NO_RESOURCES}", "--workers", "1"]
    env = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=2 * WAIT)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert server.service.fault is None and server.service.n_jobs == 0
