"""Models by name, from a hub on loopback."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantized_llama
import random_towers
from end_to_end.outcomes import Cli
from http_server import WAIT, until
from hub_server import Hub, use
from random_models import TOKENIZER

import hybrid
from hybrid import llm_plugin
from hybrid.convert import verify
from hybrid.pipeline import models
from hybrid.pipeline.vision_files import vision_of
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("own_cache")]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("hybrid.hub.download.pause", lambda failures: 0.0)
    with Hub() as hub:
        hub.use(monkeypatch, tmp_path / "hub")
        yield hub


def folder(path: Path) -> dict[str, Path]:
    return {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}


def test_a_gguf_file_runs_by_name_and_then_without_asking(
    hub: Hub, cli: Cli, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/tiny-GGUF", {"README.md": b"#", "tiny-Q8_0.gguf": files["q8_0"], "tiny-bf16.gguf": files["bf16"]})
    by_path = cli("run", files["q8_0"], "--raw", "-p", "State", "-n", 5, "--seed", 1)
    assert cli("run", "org/tiny-GGUF", "--raw", "-p", "State", "-n", 5, "--seed", 1)[:2] == by_path[:2]
    assert hub.served == files["q8_0"].stat().st_size, "more than the file that is wanted, or less"
    asked = len(hub.asked)
    use(monkeypatch, "http://127.0.0.1:1", tmp_path / "hub")
    assert cli("run", "org/tiny-GGUF", "--raw", "-p", "State", "-n", 5, "--seed", 1)[:2] == by_path[:2]
    assert len(hub.asked) == asked


def test_what_is_here_is_found_without_the_hub_s_client(hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    """Importing it would take longer than loading a small model."""
    hub.add("org/m", {"m-Q8_0.gguf": large})
    path = pulled(cli, "org/m")
    code = """
import sys
from hybrid.pipeline import models
print(models.resolve("org/m"))
slow = {"httpx", "httpx2", "requests", "tqdm", "huggingface_hub.hf_api", "huggingface_hub.file_download", "rich"}
assert not slow & set(sys.modules), slow & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **hub.environment(tmp_path / "hub"), "HF_ENDPOINT": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(path)), done.stderr


def test_python_and_llm_take_names(
    hub: Hub, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/tiny-GGUF", {"tiny-Q8_0.gguf": files["q8_0"]})
    with hybrid.load(files["q8_0"]) as model:
        expected = str(model.chat(seed=1, tokens=5).say("State"))
    with hybrid.load("org/tiny-GGUF") as model:
        assert str(model.chat(seed=1, tokens=5).say("State")) == expected
    use(monkeypatch, "http://127.0.0.1:1", tmp_path / "hub")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    assert "org/tiny-GGUF:Q8_0" in [name for name, _ in llm_plugin.names()]
    try:
        assert llm_plugin.LlmChat("org/tiny-GGUF:Q8_0").prompt("State", seed=1, max_tokens=5).text() == expected
    finally:
        llm_plugin.unload()


def test_a_checkpoint_is_converted_once(
    hub: Hub, cli: Cli, small_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {**folder(small_checkpoint), "generation_config.json": b'{"eos_token_id": 99999}'}
    hub.add("org/jamba", {**own, "onnx/model.onnx": bytes(200_000), "pytorch_model.bin": bytes(100_000)})
    by_path = cli("run", small_checkpoint, "-p", "State", "-n", 5, "--seed", 1)
    code, out, err = cli("run", "org/jamba", "-p", "State", "-n", 5, "--seed", 1)
    assert (code, out) == by_path[:2] and "converting org/jamba once" in err and "eos_token_id 99999 left out" in err
    assert not any("onnx" in path or ".bin" in path for path in hub.asked)
    use(monkeypatch, "http://127.0.0.1:1", tmp_path / "hub")
    code, out, err = cli("run", "org/jamba", "-p", "State", "-n", 5, "--seed", 1)
    assert (code, out) == by_path[:2] and "converting" not in err


def test_a_checkpoint_is_quantized_in_the_same_pass(
    hub: Hub, cli: Cli, small_checkpoint: Path, small: dict[str, Path], tmp_path: Path
) -> None:
    hub.add("org/jamba", folder(small_checkpoint))
    code, _, err = cli("run", "org/jamba:Q8_0", "-p", "State", "-n", 5, "--seed", 1)
    assert code == 0, err
    made = list((tmp_path / "cache" / "hybrid" / "converted").glob("*.gguf"))
    assert [path.name.rpartition("-")[2] for path in made] == ["Q8_0.gguf"]
    assert cli("gguf", "hash", made[0])[1].split()[1] == cli("gguf", "hash", small["q8_0"])[1].split()[1]


def test_a_checkpoint_in_nvfp4(hub: Hub, cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    """Stays in NVFP4, the smallest file with its values; a GGUF file in the same repository takes precedence."""

    def nvfp4(rng: np.random.Generator, rows: int, n: int) -> tuple[quantized_llama.Parts, np.ndarray]:
        return {
            "weight": ("U8", quantized_llama.codes(rng, rows, n // 2)),
            "weight_scale": ("F8_E4M3", rng.integers(40, 60, (rows, n // 16), dtype=np.uint8)),
            "weight_scale_2": ("F32", np.array(0.03, np.float32)),
        }, np.zeros((rows, n))

    settings = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    quantized_llama.write(tmp_path / "model", settings, nvfp4)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, tmp_path / "model" / name)
    hub.add("org/both", {**folder(tmp_path / "model"), "m-Q8_0.gguf": files["q8_0"]})
    hub.add("org/nvfp4", folder(tmp_path / "model"))
    assert pulled(cli, "org/both").name == "m-Q8_0.gguf"
    assert not any("safetensors" in path for path in hub.asked)
    for name in ("org/nvfp4", "org/nvfp4:NVFP4"):
        code, _, err = cli("run", name, "--raw", "-p", "State", "-n", 2, "--seed", 1)
        assert code == 0 and f"converting {name} once" in err and "6 of 7 tensors keep their NVFP4 blocks" in err, err


@pytest.fixture
def large() -> bytes:
    """Content of downloads that are not loaded."""
    return random.Random(1).randbytes(1 << 20)


def pulled(cli: Cli, name: str) -> Path:
    code, out, err = cli("pull", name)
    assert code == 0, err
    return Path(out.strip())


def error_of(cli: Cli, *args: object) -> str:
    """The error line of a command that must fail."""
    code, _, err = cli(*args)
    lines = err.splitlines()
    assert code in (1, 2) and lines and lines[-1].startswith("error: ") and "Traceback" not in err, err
    return lines[-1].removeprefix("error: ")


def left_over(tmp_path: Path) -> list[str]:
    """Files in the hub's cache that are incomplete or temporary."""
    found = (path for path in (tmp_path / "hub").rglob("*") if path.is_file() and ".locks" not in path.parts)
    return sorted(path.name for path in found if path.suffix in (".incomplete", ".tmp"))


def test_what_was_lost_is_not_sent_again(hub: Hub, cli: Cli, large: bytes) -> None:
    """With broken connections each byte is sent once, and the file is complete."""
    hub.add("org/m", {"m-Q4_K_M.gguf": large})
    hub.faults.drops = [300_000, 1, 0, 200_000]
    hub.faults.errors = [503]
    path = pulled(cli, "org/m")
    assert path.read_bytes() == large and hub.served == len(large)


def test_the_next_command_goes_on(hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    hub.add("org/m", {"m-Q4_K_M.gguf": large})
    hub.faults.drops = [400_000, *[0] * 6]
    assert "127.0.0.1" in error_of(cli, "pull", "org/m"), "which server does not answer"
    assert left_over(tmp_path) == [f"{hashlib.sha256(large).hexdigest()}.incomplete"]
    assert cli("models", "--json")[1].count('"partial"') == 1
    hub.faults.drops = []
    assert pulled(cli, "org/m").read_bytes() == large and hub.served == len(large)
    assert not left_over(tmp_path)
    hub.add("org/other", {"m-Q4_K_M.gguf": large[1:]})
    hub.faults.drops = [400_000, *[0] * 6]
    error_of(cli, "pull", "org/other")
    assert left_over(tmp_path) and cli("models", "rm", "org/other", "--yes")[0] == 0
    assert not left_over(tmp_path) and pulled(cli, "org/m").exists()


def test_a_hub_without_ranges_sends_all_again(hub: Hub, cli: Cli, large: bytes) -> None:
    hub.add("org/m", {"m-Q4_K_M.gguf": large})
    hub.faults.drops, hub.faults.no_ranges = [400_000], True
    assert pulled(cli, "org/m").read_bytes() == large and hub.served == 400_000 + len(large)


@pytest.mark.parametrize("fault", ["corrupt", "more"])
def test_a_file_that_is_not_the_hub_s_is_removed(fault: str, hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    hub.add("org/m", {"m-Q4_K_M.gguf": large})
    setattr(hub.faults, fault, True)
    assert "removed" in error_of(cli, "pull", "org/m")
    assert not any(path.is_file() and path.stat().st_size for path in (tmp_path / "hub").rglob("blobs/*"))
    assert not list((tmp_path / "hub").rglob("*.gguf"))
    setattr(hub.faults, fault, False)
    assert pulled(cli, "org/m").read_bytes() == large


def test_a_damaged_beginning_is_noticed(hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    """The hash includes the bytes of an earlier attempt."""
    hub.add("org/m", {"m-Q4_K_M.gguf": large})
    blobs = tmp_path / "hub" / "models--org--m" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(large).hexdigest()}.incomplete").write_bytes(bytes(1000))
    assert "removed" in error_of(cli, "pull", "org/m")
    assert pulled(cli, "org/m").read_bytes() == large


def test_one_line_for_everything_that_can_be_wrong(hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    hub.add("org/gated", {"m-Q4_K_M.gguf": large}, gated=True)
    hub.add("org/private", {"m-Q4_K_M.gguf": large}, private=True)
    hub.add("org/empty", {"README.md": b"#"})
    hub.add("org/adapter", {"my-lora-f16.gguf": large, "mmproj-f16.gguf": large, "m-imatrix.gguf": large})
    hub.add("org/vision", {"config.json": b'{"architectures": ["SeesForCausalLM"]}', "model.safetensors": large})
    hub.add("org/clip-GGUF", {"m-Q4_K_M.gguf": large}, gguf={"architecture": "clipx"})
    hub.add("org/two", {"m-Q8_0.gguf": large, "m-Q2_K.gguf": large})
    hub.add("org/several", {"a-Q8_0.gguf": large, "b-Q8_0.gguf": large})
    expected = {
        "org/gated": f"is gated: accept its terms at {hub.url}/org/gated, then set HF_TOKEN",
        "org/private": "org/private is neither a path here nor a repository at",
        "org/missing": "or it is private and HF_TOKEN is not set",
        "org/empty": "org/empty has no weights that can be run (1 file: README.md)",
        "org/adapter": "org/adapter has no weights that can be run",
        "org/vision": "LM. Its weights were not downloaded. `hybrid convert --list-architectures` lists the known ones",
        "org/clip-GGUF": "the architecture clipx is not supported. Nothing was downloaded.",
        "org/two:Q6_K": "org/two has no type Q6_K. It has Q2_K, Q8_0.",
        "org/two:m-Q6_K.gguf": "org/two has no model m-Q6_K.gguf. It has Q2_K, Q8_0.",
        "org/two@v9": "org/two has no revision v9",
        "org/several": "has 2 files of type Q8_0: a-Q8_0.gguf, b-Q8_0.gguf. Name one: org/several:a-Q8_0.gguf",
        "org/vision:Q9_K": "Q9_K is not a file type",
        "org/vision:IQ1_S": "IQ1_S needs an importance matrix",
    }
    for name, said in expected.items():
        assert said in error_of(cli, "run", name, "-p", "x"), name
    assert hub.served < 1000, "weights were downloaded"
    assert not list((tmp_path / "hub").rglob("*.gguf"))


def test_a_token_opens_what_is_gated(hub: Hub, cli: Cli, large: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("org/gated", {"m-Q4_K_M.gguf": large}, gated=True)
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody")
    assert "the owner of your token has no access. Ask for it at" in error_of(cli, "pull", "org/gated")
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert pulled(cli, "org/gated").read_bytes() == large and not hub.leaked


def test_the_hub_s_own_trouble(hub: Hub, cli: Cli, large: bytes) -> None:
    hub.add("org/m", {"m-Q4_K_M.gguf": large})
    hub.faults.api_errors = [500]
    assert "the hub answered 500" in error_of(cli, "pull", "org/m")
    hub.faults.api_errors = [429]
    assert "too many requests" in error_of(cli, "pull", "org/m")
    hub.faults.errors = [502] * 10
    assert "the hub answered 502" in error_of(cli, "pull", "org/m")
    hub.faults.errors = [403]
    assert "Check HF_TOKEN" in error_of(cli, "pull", "org/m")
    hub.faults.errors = []
    for nonsense in (b"<html>sign in</html>", b"[]", b'{"sha": "x"}', b'{"sha": 1, "siblings": {}}'):
        hub.faults.nonsense = nonsense
        assert "is not a list of files. Check HF_ENDPOINT." in error_of(cli, "pull", "org/m")


@pytest.mark.parametrize(
    "path",
    ["../../outside.gguf", "/outside.gguf", "a/../../outside.gguf", "..\\outside.gguf", "a//b.gguf", "a\nb.gguf"],
)
def test_a_name_that_would_leave_its_folder(path: str, hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    entry = {"rfilename": path, "size": len(large), "lfs": {"sha256": hashlib.sha256(large).hexdigest()}}
    hub.add("org/m", {"m-Q4_K_M.gguf": large}, listed={path: entry})
    assert "would not be inside its folder" in error_of(cli, "pull", "org/m")
    assert not list(tmp_path.rglob("*outside*"))


@pytest.mark.parametrize(
    "wrong", [{"size": -1}, {"size": 1 << 60}, {"size": True}, {"size": "9"}, {"sha256": "../../x"}, {"sha256": 7}]
)
def test_sizes_and_hashes_that_cannot_be(wrong: dict[str, object], hub: Hub, cli: Cli, large: bytes) -> None:
    lfs = {"sha256": hashlib.sha256(large).hexdigest(), "size": len(large), **wrong}
    hub.add("org/m", {"m-Q4_K_M.gguf": large}, listed={"m-Q4_K_M.gguf": {"lfs": lfs}})
    assert "Try again later." in error_of(cli, "pull", "org/m")


def test_no_room(hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    """Reported before the download begins; and a disk that fills up meanwhile."""
    lfs = {"sha256": hashlib.sha256(large).hexdigest(), "size": 1 << 49}
    hub.add("org/m", {"m-Q4_K_M.gguf": large}, listed={"m-Q4_K_M.gguf": {"lfs": lfs}})
    said = error_of(cli, "pull", "org/m")
    assert "org/m needs 512.0 TiB, and" in said and " free" in said and str(tmp_path / "hub") in said
    assert hub.served == 0


def test_no_network_and_offline(
    hub: Hub, cli: Cli, large: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/m", {"m-Q8_0.gguf": large, "m-Q2_K.gguf": large[::-1]})
    use(monkeypatch, "http://127.0.0.1:1", tmp_path / "hub")
    assert "127.0.0.1:1 cannot be reached" in error_of(cli, "run", "org/m", "-p", "x")
    for nonsense in ("http://[", "nonsense://host", "nonsense", "http://127.0.0.1:99999"):
        use(monkeypatch, nonsense, tmp_path / "hub")
        assert "cannot be reached" in error_of(cli, "run", "org/m", "-p", "x")
    use(monkeypatch, hub.url, tmp_path / "hub")
    pulled(cli, "org/m:Q8_0")
    asked = len(hub.asked)
    use(monkeypatch, hub.url, tmp_path / "hub", offline=True)
    assert "not in the cache, and HF_HUB_OFFLINE" in error_of(cli, "run", "org/m:Q2_K", "-p", "x")
    assert "On this machine: Q8_0." in error_of(cli, "run", "org/m:Q2_K", "-p", "x")
    assert "not in the cache, and HF_HUB_OFFLINE" in error_of(cli, "run", "org/other", "-p", "x")
    assert len(hub.asked) == asked


def test_names_that_are_nearly_right(hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    hub.add("org/granite-4.0-h-tiny", {"m-Q4_K_M.gguf": large})
    pulled(cli, "org/granite-4.0-h-tiny")
    assert "On this machine: org/granite-4.0-h-tiny." in error_of(cli, "run", "granite", "-p", "x")
    assert "On this machine: org/granite-4.0-h-tiny." in error_of(cli, "run", "org/granite-4.0-h-tinny", "-p", "x")
    asked = len(hub.asked)
    for path in ("missing.gguf", str(tmp_path / "no" / "model"), "a/b/c", "../a", "a/b.gguf"):
        assert f"{path}: no such file or folder" in error_of(cli, "run", path, "--raw", "-p", "x")
    assert len(hub.asked) == asked


def test_a_path_of_that_name_wins(
    hub: Hub, cli: Cli, files: dict[str, Path], large: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/m", {"m-Q4_K_M.gguf": files["q8_0"]})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "m").symlink_to(files["bf16"])
    assert cli("gguf", "show", "org/m", "general.file_type")[1] == "32\n" and not hub.asked
    (tmp_path / "org" / "m").unlink()
    assert "For the repository of that name: hf.co/org/m" in error_of(cli, "run", "org/m", "-p", "x")
    assert cli("gguf", "show", "hf.co/org/m", "general.file_type")[1] == "7\n"
    assert cli("gguf", "show", "org/m", "general.file_type")[1] == "7\n", "what is in the cache is not a mistyped path"


def test_parts_and_folders(hub: Hub, cli: Cli, files: dict[str, Path], tmp_path: Path) -> None:
    assert cli("gguf", "split", files["q8_0"], tmp_path / "m-Q4_K_M", "--split-max-size", "5M")[0] == 0
    parts = {f"Q4_K_M/{path.name}": path for path in sorted(tmp_path.glob("m-Q4_K_M-*"))}
    assert len(parts) > 2
    hub.add("org/m", {**parts, "Q8_0/m-Q8_0.gguf": b"x" * 100_000, "m-imatrix.gguf": b"y" * 100_000})
    assert (
        cli("run", "org/m", "--raw", "-p", "State", "-n", 2, "--temp", 0)[:2]
        == cli("run", files["q8_0"], "--raw", "-p", "State", "-n", 2, "--temp", 0)[:2]
    )
    assert hub.served == sum(path.stat().st_size for path in parts.values())


def test_the_tower_of_a_model_comes_with_it(hub: Hub, cli: Cli, large: bytes) -> None:
    towers = {f"mmproj-{kind}.gguf": large[i:] for i, kind in enumerate(("F32", "BF16", "F16", "Q8_0"))}
    hub.add("org/m", {"sub/m-Q4_K_M.gguf": large, "m-Q8_0.gguf": large[::-1], **towers})
    path = Path(pulled(cli, "org/m"))
    assert hub.served == 2 * len(large) - 2, "more than a model and its tower, or less"
    tower = vision_of(path)
    assert tower is not None and tower.name == "mmproj-F16.gguf" and tower.read_bytes() == large[2:]
    assert cli("models", "rm", "org/m:Q4_K_M", "--yes")[0] == 0
    assert not path.exists() and tower.exists() is False


def test_a_checkpoint_with_a_tower_is_converted_into_two_files(
    hub: Hub, cli: Cli, tmp_path: Path, data_dir: Path
) -> None:
    checkpoint = random_towers.write("smolvlm", tmp_path / "c", data_dir / "checkpoints" / "mamba-bf16")
    hub.add("org/eyes", folder(checkpoint))
    for name in ("org/eyes", "org/eyes:Q8_0"):
        path = Path(pulled(cli, name))
        tower = vision_of(path)
        assert tower == path.with_name(f"mmproj-{path.name}")
        with GGUFFile.open(tower) as file:
            wanted = FileType.Q8_0 if name.endswith(":Q8_0") else FileType.F16
            assert (file.get("general.type"), file.get("general.file_type")) == ("mmproj", wanted)
        assert verify(checkpoint, tower).n_tensors == 38
    listed = json.loads(cli("cache", "--json")[1])
    assert len([model for model in listed if model.get("made_of", "").startswith("org/eyes")]) == 2
    assert cli("models", "rm", "org/eyes", "--yes")[0] == 0
    assert not list(path.parent.glob("*.gguf"))


def test_a_revision_and_its_next_commit(hub: Hub, cli: Cli, large: bytes) -> None:
    """A downloaded model stays until it is pulled again; then only changed files are downloaded."""
    first = hub.add("org/m", {"m-Q4_K_M.gguf": large, "m-Q8_0.gguf": large[::-1]})
    pulled(cli, "org/m"), pulled(cli, "org/m:Q8_0")
    served = hub.served
    new = large[1:] + b"x"
    second = hub.add("org/m", {"m-Q4_K_M.gguf": new, "m-Q8_0.gguf": large[::-1]})
    second.commits[first.commit] = first.files
    second.revisions["v1"] = first.commit
    assert models.resolve(Path("org/m")).read_bytes() == large and hub.served == served
    assert pulled(cli, "org/m").read_bytes() == new
    assert models.resolve(Path("org/m:Q8_0")).read_bytes() == large[::-1] and hub.served == served + len(new)
    assert models.resolve(Path("org/m@v1")).read_bytes() == large
    assert models.resolve(Path(f"org/m:Q4_K_M@{first.commit}")).read_bytes() == large
    assert hub.served == served + len(new)


def test_what_huggingface_hub_downloaded_is_used(hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    """And vice versa: one cache."""
    from huggingface_hub import hf_hub_download, scan_cache_dir

    code = "import sys, huggingface_hub; print(huggingface_hub.hf_hub_download(*sys.argv[1:]))"
    theirs_of = [sys.executable, "-c", code]
    environment = {**os.environ, **hub.environment(tmp_path / "hub")}

    hub.add("org/theirs", {"m-Q8_0.gguf": large, "m-Q4_K_M.gguf": large[::-1]})
    hub.add("org/ours", {"m-Q8_0.gguf": large[1:]})
    download = [*theirs_of, "org/theirs", "m-Q8_0.gguf"]
    theirs = subprocess.run(download, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    ours = pulled(cli, "org/ours")
    hub.asked.clear()
    assert models.resolve(Path("org/theirs")) == Path(theirs)
    assert hf_hub_download("org/ours", "m-Q8_0.gguf", cache_dir=tmp_path / "hub", local_files_only=True) == str(ours)
    assert not hub.asked
    cache = scan_cache_dir(tmp_path / "hub")
    assert not cache.warnings and {repo.repo_id for repo in cache.repos} == {"org/theirs", "org/ours"}


def test_what_others_downloaded_and_we_do_not_run(hub: Hub, cli: Cli, large: bytes, tmp_path: Path) -> None:
    for name, content in {
        "config.json": b'{"architectures": ["Hears"], "model_type": "whisper"}',
        "m.gguf": b"",
    }.items():
        snapshot = tmp_path / "hub" / f"models--org--{name[0]}" / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (snapshot / name).write_bytes(content)
        (snapshot / "model.safetensors").write_bytes(large)
        (snapshot.parent.parent / "refs").mkdir()
        (snapshot.parent.parent / "refs" / "main").write_text("0" * 40)
    code, out, _ = cli("models")
    assert code == 0 and out.count("its architecture is not supported") == 2 and "whisper" in out
    assert "the architecture Hears is not supported" in error_of(cli, "run", "org/c", "-p", "x")
    assert not hub.asked


def test_two_at_once_download_it_once(hub: Hub, program: Path, large: bytes, tmp_path: Path) -> None:
    hub.add("org/m", {"m-Q4_K_M.gguf": large})
    hub.faults.hold_at = 300_000
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["env"] = {**os.environ, **hub.environment(tmp_path / "hub")}
    first = subprocess.Popen([program, "pull", "org/m"], **pipes)
    until(lambda: hub.served >= 300_000 or first.poll() is not None)
    second = subprocess.Popen([program, "pull", "org/m"], **pipes)
    assert second.stderr is not None
    assert any("another process downloads this file; waiting for it" in line for line in second.stderr)
    hub.faults.go.set()
    paths = {process.communicate(timeout=WAIT)[0].strip() for process in (first, second)}
    assert [first.returncode, second.returncode] == [0, 0]
    assert [Path(path).read_bytes() == large for path in paths] == [True] and hub.served == len(large)


def test_an_interrupt_says_that_it_goes_on(hub: Hub, program: Path, large: bytes, tmp_path: Path) -> None:
    hub.add("org/m", {"m-Q4_K_M.gguf": large})
    hub.faults.hold_at = 300_000
    environment = {**os.environ, **hub.environment(tmp_path / "hub")}
    command = [program, "pull", "org/m"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until(lambda: any(path.stat().st_size > 60_000 for path in (tmp_path / "hub").rglob("*.incomplete")))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 130 and err.splitlines()[-1].startswith("interrupted; the partial download of org/m")
    hub.faults.hold_at = 0
    hub.faults.go.set()
    before = hub.served
    assert subprocess.run(command, env=environment, check=False, capture_output=True).returncode == 0
    assert hub.served - before < len(large) - 50_000, "it began anew"


def test_every_command_takes_names(
    hub: Hub, cli: Cli, small: dict[str, Path], small_checkpoint: Path, prose: Path, tmp_path: Path
) -> None:
    hub.add("org/jamba", folder(small_checkpoint))
    hub.add("org/jamba-GGUF", {"jamba-Q8_0.gguf": small["q8_0"], "jamba-bf16.gguf": small["bf16"]})
    out = tmp_path / "out.gguf"
    for command in (
        ["inspect", "org/jamba-GGUF"],
        ["gguf", "hash", "org/jamba-GGUF:BF16"],
        ["perplexity", "org/jamba-GGUF", "-f", prose, "-c", "64", "--chunks", "2"],
        ["embed", "org/jamba-GGUF", "-f", prose, "-o", tmp_path / "e.txt"],
        ["bench", "org/jamba-GGUF", "-p", "8", "-n", "2", "-r", "1"],
        ["imatrix", "org/jamba-GGUF", "-f", prose, "-c", "64", "--chunks", "1", "-o", tmp_path / "i.gguf"],
        ["convert", "org/jamba", "-o", out],
    ):
        code, _, err = cli(*command)
        assert code == 0, (command, err)
    hashes = [cli("gguf", "hash", path, "--no-layer")[1].split()[1] for path in (out, small["bf16"])]
    assert hashes[0] == hashes[1]
    assert cli("quantize", "org/jamba", out, "Q8_0")[0] == 0
    from_checkpoint = cli("gguf", "hash", out, "--no-layer")[1].split()[1]
    assert cli("quantize", "org/jamba-GGUF", out, "Q8_0")[0] == 0, "of two files the one with more bits is the source"
    assert cli("gguf", "hash", out, "--no-layer")[1].split()[1] == from_checkpoint
    assert "org/jamba-GGUF has no checkpoint to convert" in error_of(cli, "convert", "org/jamba-GGUF")


def test_models_lists_and_removes(
    hub: Hub, cli: Cli, small: dict[str, Path], small_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/jamba", folder(small_checkpoint))
    hub.add("org/g", {"g-Q8_0.gguf": small["q8_0"], "g-bf16.gguf": small["bf16"]})
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(small["q8_0"].read_bytes())
    assert cli("models")[1].startswith("nothing is here yet")
    for name in ("org/jamba", "org/jamba:Q8_0", "org/g", "org/g:BF16"):
        pulled(cli, name)
    assert cli("run", mine, "--raw", "-p", "x", "-n", "1")[0] == 0
    assert not any(m["trouble"] for m in json.loads(cli("models", "--json")[1]))
    listed = {(m["name"], m["kind"]): m for m in json.loads(cli("models", "--json")[1])}
    assert {(name, kind, m["type"], m["architecture"]) for (name, kind), m in listed.items()} == {
        ("org/g:Q8_0", "gguf", "Q8_0", "jamba"),
        ("org/g:BF16", "gguf", "BF16", "jamba"),
        ("org/jamba", "checkpoint", "", "jamba"),
        ("org/jamba", "conversion", "BF16", "jamba"),
        ("org/jamba:Q8_0", "conversion", "Q8_0", "jamba"),
        (str(mine), "file", "Q8_0", "jamba"),
    }
    assert listed["org/g:Q8_0", "gguf"]["nbytes"] == small["q8_0"].stat().st_size
    assert "is not removed: there is no terminal to ask in. Add --yes." in error_of(cli, "models", "rm", "org/g:Q8_0")
    assert f"{mine} is your own" in error_of(cli, "models", "rm", mine, "--yes")
    assert "org/none is not here" in error_of(cli, "models", "rm", "org/none", "--yes")
    assert cli("models", "rm", "org/g:Q8_0", "org/jamba:Q8_0", "--yes")[0] == 0
    left = {(m["name"], m["kind"]) for m in json.loads(cli("models", "--json")[1])}
    assert set(listed) - left == {("org/g:Q8_0", "gguf"), ("org/jamba:Q8_0", "conversion")}
    assert cli("models", "rm", "org/jamba", "org/g", "--yes")[0] == 0
    assert [m["kind"] for m in json.loads(cli("models", "--json")[1])] == ["file"]
    assert mine.exists() and not list((tmp_path / "hub").glob("models--*"))
    assert not list((tmp_path / "cache" / "hybrid" / "converted").iterdir())
