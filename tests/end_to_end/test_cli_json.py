"""--json of every command: one value on stdout, with documented names, and no NaN."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peft_adapters
import pytest
import random_checkpoints
import random_rerankers
from end_to_end.outcomes import Cli, ok
from golden.scores import make
from harness_tasks import write_tasks
from hub_server import Hub

from hybrid.cli import console
from hybrid.cli.main import COMMANDS, load
from hybrid.convert.checkpoint import Checkpoint
from hybrid.infer.bench.machine import Machine

pytestmark = pytest.mark.exhaustive

WITHOUT = {
    "demo": "a show for a person; each of its steps is a command that has --json",
    "launch": "writes another program's settings, or starts that program",
    "stop": "unloads models; hybrid ps --json says what a server keeps",
    "serve": "answers over HTTP until it is stopped; GET /props and /metrics say what it is",
}


def commands() -> Iterator[tuple[str, Any]]:
    """(words, command) of every command."""
    for name in COMMANDS:
        command = load(name)
        if hasattr(command, "commands"):
            yield from ((f"{name} {word}", below) for word, below in command.commands.items())
        else:
            yield name, command


def test_every_command_has_it() -> None:
    has = {words: any("--json" in param.opts for param in command.params) for words, command in commands()}
    without = {words for words, there in has.items() if not there}
    assert without == set(WITHOUT), "add --json (console.out_json), a row of CASES and what it prints"
    with_server = {"ps"}  # tests/end_to_end/test_serve_models.py
    assert {words for words, there in has.items() if there} == set(CASES) | with_server


def parsed(text: str) -> Any:
    """The single JSON value. Fails for NaN and infinity, which are not JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in {text[:200]}")

    return json.loads(text, parse_constant=refuse)


# words -> (arguments, names in the object or in the first object of the list; "": no objects, or any names)
CASES: dict[str, list[tuple[str, str]]] = {
    "convert": [
        (
            "{checkpoint} -o {out}/c.gguf",
            "architecture file_type n_files n_params n_tensors nbytes notes output seconds source vision",
        ),
        ("{checkpoint} -o {out}/v.gguf --verify", "convert verify"),
        ("{checkpoint} --dry-run", "architecture file_type n_params nbytes notes output source tensors vision"),
        ("--list-architectures", ""),
        (
            "{checkpoint} --lora {adapter} -o {out}/b.gguf",
            "alpha architecture n_matrices nbytes notes output ranks seconds source",
        ),
    ],
    "quantize": [
        (
            "{model} {out}/q.gguf Q4_0",
            "bits_per_weight dst file_type mix n_files n_threads nbytes nbytes_source seconds src tensors",
        ),
        ("{model} {out}/q.gguf Q4_0 --dry-run", "name nbytes reason shape source target unfit"),
    ],
    "imatrix": [
        (
            "{model} -f {prose} -c 32 --chunks 2 -o {out}/m.gguf",
            "active deviation entropy evenness least mean most n name outliers similarity total",
        ),
    ],
    "inspect": [
        (
            "{model}",
            "architecture bits_per_weight ends file_type is_encoder kv_nbytes_per_seq kv_nbytes_per_token "
            "metadata n_ctx n_ctx_train n_embd n_expert n_expert_used n_vocab n_weights name nbytes path "
            "pattern state_nbytes_per_seq tensors types version vision",
        ),
        (
            "{model} --memory --fit",
            "architecture bits_per_weight ends file_type fit is_encoder kv_nbytes_per_seq kv_nbytes_per_token "
            "memory metadata n_ctx n_ctx_train n_embd n_expert n_expert_used n_vocab n_weights name nbytes "
            "path pattern state_nbytes_per_seq tensors types version vision",
        ),
    ],
    "gguf split": [
        ("{model} {out}/s --split-max-tensors 20", "parts source"),
    ],
    "gguf merge": [
        ("{out}/s-00001-of-00002.gguf {out}/merged.gguf", "n_tensors nbytes path"),
    ],
    "gguf merge-lora": [
        ("{model} {out}/a.gguf -o {out}/l.gguf", "n_changed n_tensors nbytes output"),
    ],
    "gguf hash": [
        ("{model}", "digest expected kind tensor"),
    ],
    "gguf set": [
        ("{out}/q.gguf general.name New", "in_place key new old path type"),
    ],
    "gguf show": [
        ("{model}", ""),
        ("{model} general.name", "general.name"),
    ],
    "run": [
        (
            "{model} --raw -p One -n 3",
            "accepted discarded eog forced gen_seconds gen_tokens guessed ids passes pending prompt_seconds "
            "prompt_tokens reason repeated stop text ttft",
        ),
        (
            "{model} --raw -p One -n 3 --n-probs 2",
            "accepted completion_probabilities discarded eog forced gen_seconds gen_tokens guessed ids passes pending "
            "prompt_seconds prompt_tokens reason repeated stop text ttft",
        ),
    ],
    "embed": [
        ("{model} -f {lines} --pooling mean", "data model n_embd normalized pooling"),
    ],
    "rerank": [("{reranker} -p Who? {lines} {endings}", "model n_documents query results")],
    "perplexity": [
        (
            "{model} -f {prose} -c 32 --chunks 2",
            "by_position mean_nll n_chunks n_ctx n_parallel n_scored n_tokens ppl running seconds stderr stride",
        ),
        (
            "{model} -f {prose} -c 32 --chunks 2 --by-position 3",
            "by_position mean_nll n_chunks n_ctx n_parallel n_scored n_tokens ppl running seconds stderr stride",
        ),
        ("{model} -f {prose} -c 32 --chunks 2 --kl-divergence-base {out}/base", "file n_chunks n_ctx ppl"),
        (
            "{model} --kl-divergence-base {out}/base --kl-divergence",
            "correlation difference kld kld_percentiles ln_ratio n_chunks n_ctx n_scored p_change "
            "p_change_percentiles p_change_rms ppl ppl_base ratio same_top seconds",
        ),
        ("{model} -f {winogrande} --winogrande", "accuracy n_processed n_tasks n_tokens n_whole stderr"),
        ("{model} -f {questions} --multiple-choice", "acc_norm chance n_processed n_tasks n_tokens stderr"),
        ("{model} -f {endings} --hellaswag", "acc_norm high low n_processed n_tasks n_tokens"),
    ],
    "eval": [("{model} --tasks goes_on --tasks-dir {tasks} --limit 1", "")],  # the harness chooses the names
    "bench": [
        (
            "{model} -p 4 -n 0 -r 1 --no-start",
            "avg_ns avg_ts model_filename model_n_params model_size model_type n_depth n_gen n_parallel "
            "n_prompt n_threads n_ubatch numa precision samples_ns samples_ts start stddev_ts test_time type_k "
            "type_v",
        ),
        (
            "{model} --spec ngram -d 4 -n 2 -r 1 --no-warmup",
            "accepted_share draft_filename guess_stddev_ts guess_ts model_filename model_n_params model_size "
            "model_type n_accepted n_depth n_gen n_guessed n_parallel n_passes n_prompt n_threads n_ubatch numa "
            "plain_stddev_ts plain_ts precision ratio samples_guess_ts samples_plain_ts spec test_time type_k type_v",
        ),
        ("{model} -p 4 -n 0 --profile", "machine model_filename name rows seconds test"),
        ("--list-shapes", "architecture n_params name"),
    ],
    "pull": [
        ("org/g", "name path"),
    ],
    "models": [
        ("", "architecture kind name nbytes path trouble type"),
        ("rm org/g --yes", "name nbytes"),
    ],
    "state": [
        ("list", ""),
        (
            "show {state}",
            "branches cached_tokens first library model n_checkpoints n_tokens nbytes path saved shifted turns",
        ),
        ("export {state} -m {model} -o {out}/x.session", "n_tokens nbytes path"),
        ("import {out}/x.session -m {model} -o {out}/y.state", "n_tokens nbytes path"),
    ],
    "tokenize": [
        ("{model} One", "id text"),
    ],
    "precompile": [
        ("{model}", "folder model_filename n_compiled n_kernels seconds"),
    ],
    "cache": [
        ("list", ""),
        ("path", "path"),
        ("clear --models", ""),
    ],
}

SLOW = ("bench", "eval")

# commands that have to run first
BEFORE = {
    "gguf merge": "gguf split {model} {out}/s --split-max-tensors 100",
    "gguf set": "quantize {model} {out}/q.gguf Q8_0",
    "gguf merge-lora": "convert {checkpoint} --lora {adapter} -o {out}/a.gguf",
    "models": "pull org/g",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: None) -> Iterator[Hub]:
    with Hub() as server:
        server.use(monkeypatch, tmp_path / "hub")
        yield server


@pytest.fixture
def places(
    files: dict[str, Path], tmp_path: Path, data_dir: Path, prose: Path, bundled: Path, hub: Hub, cli: Cli
) -> dict[str, str]:
    """The values of the placeholders in `CASES`."""
    hub.add("org/g", {"g-Q8_0.gguf": files["q8_0"]})
    sentence = "The model reads the text and"
    made = {
        "lines": "one line\nanother\n",
        "winogrande": "1,It reads the _ word by word.,text,state,1\n",
        "endings": f"{sentence}\n0\ngoes on\nstops\nwaits\nends\n",
    }
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "questions").write_bytes(make.multiple_choice([(sentence, ["goes on", "stops"], 0)]))
    name, tensor = next((n, t) for n, t in Checkpoint(bundled).tensors.items() if n.endswith("in_proj.weight"))
    thin = {name: (np.ones((1, tensor.shape[1]), np.float32), np.ones((tensor.shape[0], 1), np.float32))}
    adapter = peft_adapters.write(tmp_path / "peft", thin, 1)
    ok(cli("run", files["bf16"], "--raw", "-p", "One two", "-n", "3", "--state", tmp_path / "s.state"))
    return {
        **{name: str(tmp_path / name) for name in (*made, "questions")},
        "model": str(files["bf16"]),
        "reranker": str(random_rerankers.causal(random_checkpoints.CONFIGS["qwen3"], tmp_path / "reranker", data_dir)),
        "prose": str(prose),
        "checkpoint": str(bundled),
        "out": str(tmp_path),
        "adapter": str(adapter),
        "state": str(tmp_path / "s.state"),
        "tasks": str(write_tasks(tmp_path / "tasks", prose)),
    }


@pytest.mark.parametrize("words", [pytest.param(w, marks=pytest.mark.slow) if w in SLOW else w for w in CASES])
def test_one_value_with_these_names(
    words: str, places: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Machine("cpu", "avx2", 1, 40.0, 200.0, {})  # measuring them takes seconds
    monkeypatch.setattr("hybrid.infer.bench.machine.measure_machine", lambda n_threads: limits)
    for command in filter(None, [BEFORE.get(words)]):
        ok(cli(*(word.format(**places) for word in command.split())))
    for arguments, names in CASES[words]:
        given = [word.format(**places) for word in f"{words} {arguments} --json".split()]
        value = parsed(ok(cli(*given)))
        first = value[0] if isinstance(value, list) and value else value
        if names:
            assert sorted(first) == names.split(), f"{words} {arguments}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "null"),
        ([float("inf"), -float("inf"), 1.5], "[null, null, 1.5]"),
        ({Path("a"): Path("b/c")}, '{"a": "b/c"}'),
    ],
)
def test_what_json_lacks(value: object, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.as_json(value) == text
    console.out_json(value)
    assert parsed(capsys.readouterr().out) == json.loads(text)
