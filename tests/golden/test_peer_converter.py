"""Files of our converter compared with llama.cpp's: metadata key by key, tensors byte by byte.

    PEER_SOURCE=path/to/llama.cpp PEER_PYTHON=path/to/python pytest tests/golden/test_peer_converter.py

(its Python needs torch, transformers and sentencepiece).

REASONS has the reason for every difference.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxfp4_checkpoints
import numpy as np
import pytest
import random_checkpoints
import random_heads
from families import merged
from reference import plamo2_vocabulary
from reference.tokenizer_files import gemma_json
from retrieval_checkpoints import qwen3_reranker, write_modules
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.convert.checkpoint import Checkpoint
from hybrid.quant.ggml.reader import GGUFFile

SOURCE, PYTHON = os.environ.get("PEER_SOURCE", ""), os.environ.get("PEER_PYTHON", "python3")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SOURCE, reason="PEER_SOURCE names no folder of llama.cpp's sources"),
]

# Reference checkpoints; "legacy" if its converter reads only the keys of transformers 4. qwen3-next is left out: it has
# layers without experts, which the converter does not know.
CHECKPOINTS = {
    "bamba": "legacy", "bert-embed": "", "falcon-h1": "", "falcon-mamba": "", "gemma4": "", "granite-dense": "legacy",
    "granite-moe": "legacy", "jamba-dense": "", "jamba-moe": "", "jamba-trained-bf16": "", "lfm2": "", "llama": "",
    "llama-unigram-bin": "", "mamba-bf16": "", "mamba-f32": "", "mamba-trained-bf16": "", "mamba2": "",
    "minimax": "legacy",
    "nemotron-h": "legacy", "nemotron-h-moe": "legacy", "qwen3_5": "", "smollm3": "",
    "kimi-linear": "legacy", "bailing-hybrid": "legacy",
    "gpt-oss": "legacy", "ministral3": "",
    "glm5-next": "legacy",
    "qwen4-exp": "legacy",
}  # fmt: skip
# As published: transformers' own names reach llama.cpp with transformers' keys.
PUBLISHED = merged("as_published")
# Random checkpoints and encoders, with config fields that its converter needs.
RANDOM_ENCODERS, RANDOM = {}, {}
for _name, _fields in merged("converted").items():
    (RANDOM_ENCODERS if _name in random_checkpoints.ENCODERS else RANDOM)[_name] = _fields
# Models with heads that guess tokens ahead, and their model_type.
HEADS = {
    "qwen3next-mtp": "qwen3_next",
    "qwen35-mtp": "qwen3_5_text",
    "qwen35moe-mtp": "qwen3_5_moe_text",
    "glm4-moe-mtp": "glm4_moe",
    "glm4-moe-mtp-shared": "glm4_moe",
    "bailing-hybrid-mtp": "bailing_moe_v3",
    "bailingmoe2-mtp": "bailing_moe_v2",
    "hy-v3-mtp": "hy_v3",
    "deepseek-v32-mtp": "deepseek_v32",
    "glm-dsa-mtp": "glm_moe_dsa",
}
LING = {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "no_kda_lora": True,
    "kda_safe_gate": True,
    "gated_attention_proj_granularity_type": "head_wise",
    "moe_shared_expert_intermediate_size": 128,
    "norm_topk_prob": True,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "score_function": "sigmoid",
}
MORE = {
    **{name: ["--no-mtp"] for name in ("qwen3_5", "random-glm4-moe", "random-glm4-moe-plain")},
    "random-embedding-gemma": ["--sentence-transformers-dense-modules"],
}
# Permitted differences: models, keys or tensors, maximum difference of tensors (relative to the largest value), reason.
REASONS = [
    ("", r"hybrid\.tokenizer\.normalizer", 0, "no key of llama.cpp's: the Unicode normalization of the tokenizer"),
    ("", r"general\.name", 0, "a weight type at the end of a folder's name is no part of the model's"),
    (
        "random-gemma3n",
        r"gemma3n\.activation_sparsity_scale",
        0,
        "in f64, rounded once; there by torch's erfinv in f32",
    ),
    ("gemma4", r"tokenizer\.ggml\.(add_(eos|sep)_token|token_type)", 0, "of a tokenizer.json made for this test"),
    ("", r"tokenizer\.ggml\.(eot|unknown)_token_id", 0, "found in the tokenizer, where its config says nothing"),
    ("random", r"tokenizer\.ggml\.add_space_prefix", 0, "byte-level BPE has none"),
    (
        "jamba|llama|ministral3",
        r"tokenizer\.ggml\.token_type",
        0,
        "<unk> is 'unknown', as tokenizer.model says; there 'control'",
    ),
    (
        "llama-unigram",
        r"tokenizer\.ggml\..*",
        0,
        "a unigram vocabulary is of the model t5; there llama, with other ids",
    ),
    ("mamba", r"tokenizer\.ggml\.token(s|_type)", 0, "there padded to a multiple of 8 or 16; the embedding is not"),
    ("falcon-mamba", r"mamba\.ssm\.dt_b_c_rms_epsilon", 0, "no key of llama.cpp's: the epsilon of these norms"),
    ("", r"blk\.\d+\.ssm_a", 2e-7, "-exp(A_log) in f64, rounded once"),
    ("falcon-h1", r"blk\.\d+\.(ssm_in|attn_.|ffn_gate)\.weight", 4e-3, "multiplied in f64, rounded once"),
    ("falcon-h1", r"output\.weight|general\.size_label", 0, "tied, but with multipliers of its own: the file has both"),
    ("sarvam", r"blk\.\d+\.exp_probs_b\.bias", 1e-6, "less their mean, a sum in another order"),
    ("bamba", r"blk\.\d+\.attn_[qk]\.weight", 2, "there the rows of a head are reordered as if all of it turned"),
    ("minimax", r"hybrid\.lightning\.norm_rms_epsilon", 0, "no key of llama.cpp's: there the epsilon of the others"),
    ("minimax", r"minimax-01\.attention\.recurrent_layers", 0, "read but not written there: right for every 8th alone"),
    ("minimax", r"tokenizer\.chat_template", 0, "there always that of MiniMax-M1"),
    ("kimi-k3", r"tokenizer\.chat_template", 0, "there a template of llama.cpp's own: the repository has code instead"),
    ("(gptneox|falcon)-yarn", r"\w+\.rope\.scaling\.\w+", 0, "there left out; its programs obey them"),
    ("phimoe", r"phimoe\.rope\.scaling\.attn_factor", 0, "there LongRoPE's own, whatever short_mscale says"),
    ("phimoe", r"phimoe\.rope\.scaling\.type", 0, "left out there; the tensors of factors say it"),
    ("phimoe", r"hybrid\.attention\.sliding_window", 0, "no key of llama.cpp's: there are no windows"),
    ("arcee|nemotron$", r"\w+\.attention\.(key|value)_length", 0, "there always; readers take the quotient anyway"),
    (
        "-(nemotron|minicpm3?)$",
        r"tokenizer\.ggml\.(bos|eos|unknown|padding)_token_id",
        0,
        "there fixed, or of absent settings",
    ),
    (
        "phimoe|-gemma$",
        r"tokenizer\.ggml\.(bos|eos)_token_id",
        0,
        "of tokenizer.model; there of settings that are not here",
    ),
    ("phimoe", r"hybrid\.expert_router_jitter", 0, "no key of llama.cpp's: there is no sparse mixer"),
    ("minicpm3", r"minicpm3\.residual_scale", 0, "there made of the number of layers, which may be of a pruned file"),
    ("minicpm3", r"hybrid\.attention\.latent_norm_rms_epsilon", 0, "no key of llama.cpp's: there that of others"),
    ("-nemotron$", r"nemotron\.attention\.layer_norm_rms_epsilon", 0, "there that of other norms, too"),
    ("plamo2", r"plamo2\.attention\.head_count", 0, "there 0 on Mamba layers, with which it never ends turning heads"),
    ("plamo2", r"hybrid\.attention\.sliding_window", 0, "no key of llama.cpp's: there are no windows"),
    ("plamo2", r"tokenizer\.ggml\.add_bos_token", 0, "as tokenizer_config.json says; there left out"),
    ("bert", r"tokenizer\.ggml\.cls_token_id", 0, "in older files of llama.cpp's, too; it has no use for it any more"),
    ("bert(a?)-scores", r"bert\.pooling_type", 0, "there left to an option of its programs"),
    ("modern-bert-scores", r"modern-bert\.pooling_type", 0, "the same"),
    ("modern-bert-scores", r"modern-bert\.attention\.sliding_window_pattern", 0, "there only if the config has it"),
    ("modern-bert", r"tokenizer\.ggml\.add_sep_token", 0, "there true, unless the tokenizer has a template"),
    ("-bert-scores", r"cls\.(weight|bias)", 0, "the pooler, which is left out there, and its programs would use"),
    ("-bert-scores", r"general\.size_label", 0, "with these weights"),
    ("qwen3-reranker", r"general\.(basename|finetune)", 0, "there guessed from the name of the folder"),
    ("hunyuan$", r"tokenizer\.ggml\.eos_token_id", 0, "there eod_token_id of the config, whatever the tokenizer says"),
    ("openelm", r"tokenizer\.ggml\..*", 0, "there Llama 2's own vocabulary, since the folder has no tokenizer.model"),
    (
        "gpt-oss|deepseek4",
        r"(gpt-oss|deepseek4)\.rope\.scaling\.yarn_beta_(fast|slow)",
        0,
        "the usual ones, which readers take anyway",
    ),
    ("deepseek4", r"deepseek4\.attention\.compress_ratios", 0, "there with those of layers that are left out"),
    ("deepseek4", r"tokenizer\.chat_template", 0, "there one of llama.cpp's, where the checkpoint has none"),
    ("gpt-oss", r"hybrid\.rope\.scaling\.truncate", 0, "no key of llama.cpp's: YaRN's bounds lie between pairs"),
    ("phi2|stablelm", r"(phi2|stablelm)\.rope\.freq_base", 0, "there left to readers, who take 10000"),
    ("gptneox|falcon|gemma$", r"(gptneox|falcon|gemma)\.rope\.freq_base", 0, "the same"),
    ("gptneox|falcon", r"hybrid\.feed_forward\.exact_gelu", 0, "no key of llama.cpp's: there GELU is by tanh"),
    ("gptneox", r"general\.file_type", 0, "left out there"),
    ("granite-dense", r"granitehybrid\.context_length", 0, "there Mamba layers rule out RoPE"),
    ("granite-dense", r"granitehybrid\.rope\.scaling\.finetuned", 0, "the same"),
    ("granite-dense", r"granitehybrid\.expert_shared_feed_forward_length", 0, "it has no experts"),
    ("qwen35", r"qwen35\w*\.full_attention_interval", 0, "there the usual one, since transformers has layer_types"),
    ("qwen35moe", r"qwen35moe\.feed_forward_length", 0, "of a layer without experts, of which there is none"),
    (
        "kimi|bailing|deepseek-v32",
        r"hybrid\.attention\.latent_norm_rms_epsilon",
        0,
        "no key of llama.cpp's: the epsilon of these norms",
    ),
    ("kimi|bailing", r".*\.expert_group_count", 0, "there only from n_group; these configs have num_expert_group"),
    ("kimi|bailing", r".*\.attention\.value_length", 0, "there head_dim, which is no width of a value"),
    (
        "deepseek-v2-groups",
        r"hybrid\..*",
        0,
        "no keys of llama.cpp's: the epsilon of inner norms, a group's best expert",
    ),
    ("kimi-linear", r"kimi-linear\.rope\.freq_base", 0, "no layer turns"),
    ("kimi-linear", r"kimi-linear\.expert_weights_norm", 0, "there taken for granted"),
    (
        "qwen4-exp",
        r"qwen4exp\.full_attention_interval",
        0,
        "there 4 where the config does not say, whatever layers are",
    ),
    ("nemotron-h$", r"general\.architecture|nemotron_h(_moe)?\..*", 0, "there transformers' defaults add experts"),
]


@pytest.fixture(scope="module")
def both_files(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, data_dir: Path) -> Any:
    """Our file and llama.cpp's, by name. All its conversions run in one process, because it starts slowly."""
    shared = Path(request.getfixturevalue("shared_dir")) / "checkpoints"
    folder = tmp_path_factory.mktemp("peer")
    jobs, both = [], {}
    own = (item for item in request.session.items if isinstance(item, pytest.Function))
    asked = {
        item.callspec.params["name"]
        for item in own
        if item.module is request.module and "both_files" in item.fixturenames
    }
    for name, source, kind in _sources(folder, shared, data_dir / "checkpoints" / "mamba-bf16"):
        if name not in asked:
            continue
        ours, peers = folder / f"{name}.ours.gguf", folder / f"{name}.gguf"
        convert(source, ours, outtype=kind)
        with GGUFFile.open(ours) as file:
            pre = file.get("tokenizer.ggml.pre", "default")
        arguments = [str(source), "--outfile", str(peers), "--outtype", kind, *MORE.get(name, [])]
        jobs.append({"arguments": arguments, "pre": pre})
        both[name] = ours, peers
    program = Path(__file__).parent / "peer_converter.py"
    with (folder / "output").open("wb") as log:
        subprocess.run([PYTHON, program, SOURCE, json.dumps(jobs)], stdout=log, stderr=log, check=True, timeout=1200)
    print("\n".join(re.findall("^REFUSED.*", (folder / "output").read_text(errors="replace"), re.MULTILINE)))
    return both


def _sources(folder: Path, shared: Path, tokenizer: Path) -> Iterator[tuple[str, Path, str]]:
    yield from _shared_sources(folder, shared)
    for name in RANDOM:
        checkpoint = _random_source(name, folder, shared, tokenizer)
        yield f"random-{name}", checkpoint, "f32" if name.startswith("deepseek4") else "f16"
    for name, more in RANDOM_ENCODERS.items():
        config = {**random_checkpoints.ENCODERS[name], "vocab_size": random_checkpoints.N_VOCAB, **more}
        checkpoint = random_checkpoints.write(config, folder / f"random-{name}")
        random_checkpoints.pad_positions(checkpoint)
        own = tokenizer.parents[1] / "tokenizers" / "wordpiece" if name.startswith("bert") else tokenizer
        for file in own.glob("*token*.json"):
            shutil.copyfile(file, checkpoint / file.name)
        if name == "embedding-gemma":
            write_modules(checkpoint, (60, 90), (90, 60), pooling_mode_mean_tokens=True)
        if name == "lfm2-bidirectional":  # its converter wants the published names
            tensors = load_file(checkpoint / "model.safetensors")
            plain = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
            save_file(plain, checkpoint / "model.safetensors")
            write_modules(checkpoint, (60, 32))
        yield f"random-{name}", checkpoint, "f16"
    yield "qwen3-reranker", qwen3_reranker(folder, tokenizer.parents[1]), "f16"
    for name, kind in HEADS.items():
        config, shapes = random_heads.WITH_HEADS[name]
        more = {"model_type": kind, "num_nextn_predict_layers": 1, **(LING if kind == "bailing_moe_v3" else {})}
        more |= RANDOM.get(name.removesuffix("-mtp"), {}) if kind == "bailing_moe_v2" else {}
        checkpoint = random_checkpoints.write({**config, **more}, folder / f"random-{name}", shapes)
        for file in tokenizer.glob("*token*.json"):
            shutil.copyfile(file, checkpoint / file.name)
        _join_heads(checkpoint / "model.safetensors")
        yield f"random-{name}", checkpoint, "f16"


def _shared_sources(folder: Path, shared: Path) -> Iterator[tuple[str, Path, str]]:
    for name, dialect in CHECKPOINTS.items():
        checkpoint = folder / name
        checkpoint.mkdir()
        for file in (shared / name).iterdir():
            if file.name != "golden" and not file.name.startswith("config"):
                (checkpoint / file.name).symlink_to(file)
        if name == "minimax":  # it looks up the embedding in an index
            names = dict.fromkeys(Checkpoint(shared / name).tensors, "model.safetensors")
            (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        shutil.copyfile(shared / name / f"config.{dialect}.json".replace("..", "."), checkpoint / "config.json")
        if name in PUBLISHED:
            config = json.loads((checkpoint / "config.json").read_text())
            (checkpoint / "config.json").write_text(json.dumps(config | PUBLISHED[name]))
        if name == "gemma4":
            _write_gemma_tokenizer(checkpoint, shared / name)
        yield name, checkpoint, "f32" if name == "mamba-f32" else "bf16"


def _random_source(name: str, folder: Path, shared: Path, tokenizer: Path) -> Path:
    config = random_checkpoints.CONFIGS[name.removesuffix("-mxfp4")]
    checkpoint = random_checkpoints.write({**config, **RANDOM[name]}, folder / f"random-{name}")
    for file in () if name.startswith("plamo2") else tokenizer.glob("*token*.json"):
        shutil.copyfile(file, checkpoint / file.name)
    if name.startswith("gemma4"):
        _write_gemma_tokenizer(checkpoint, shared / "gemma4")
    if name in ("phimoe", "nemotron", "gemma", "minicpm", "minicpm3"):  # it reads only tokenizer.model for these
        for file in checkpoint.glob("*token*"):
            file.unlink()
        shutil.copyfile(shared / "llama" / "tokenizer.model", checkpoint / "tokenizer.model")
    if name.startswith("plamo2"):
        plamo2_vocabulary.write(checkpoint)
    if name.startswith("gpt-oss") and name.endswith("-mxfp4"):
        mxfp4_checkpoints.pack(checkpoint)
    if name.startswith("deepseek4"):
        mxfp4_checkpoints.publish_deepseek4(checkpoint)
    if name == "openelm":
        _join_halves(checkpoint / "model.safetensors")
    if name.startswith(("deepseek-", "glm-dsa", "kimi-k3", "bailingmoe", "youtu")):
        _join_heads(checkpoint / "model.safetensors")
    return checkpoint


def _write_gemma_tokenizer(folder: Path, source: Path) -> None:
    """For Gemma 4 the converter ignores tokenizer.model: write the model of `source` as tokenizer.json."""
    for file in folder.glob("*token*"):
        file.unlink()
    (folder / "tokenizer.json").write_text(json.dumps(gemma_json(source / "tokenizer.model")))
    names = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "pad", "unk")}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _join_halves(path: Path) -> None:
    """Random checkpoints have gate and up apart, as our converter sees them; join them."""
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(".proj_1.gate")]:
        halves = [tensors.pop(name), tensors.pop(name.removesuffix("gate") + "up")]
        tensors[name.removesuffix("gate") + "weight"] = np.concatenate(halves)
    save_file(tensors, path)


def _join_heads(path: Path) -> None:
    """They also have keys and values of every head apart, and pieces of a delta rule's projections; join them."""
    tensors = load_file(path)
    apart = (".kv_b_proj.weight.0", ".in_proj_qkvz.weight.0", ".query_key_value.weight.0")
    for name in [name.removesuffix(".0") for name in tensors if name.endswith(apart)]:
        n_part = sum(other.startswith(name + ".") for other in tensors)
        tensors[name] = np.concatenate([tensors.pop(f"{name}.{i}") for i in range(n_part)])
    save_file(tensors, path)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", [*CHECKPOINTS, "qwen3-reranker", *(f"random-{name}" for name in (*RANDOM, *RANDOM_ENCODERS, *HEADS))]
)
def test_files_are_equal(name: str, both_files: dict[str, tuple[Path, Path]]) -> None:
    ours, peers = (GGUFFile.open(path) for path in both_files[name])
    differ: dict[str, float] = {}
    for key in ours.metadata.keys() | peers.metadata.keys():
        if not _equal(ours.metadata.get(key), peers.metadata.get(key)):
            differ[key] = 0.0
    for tensor in ours.tensors.keys() | peers.tensors.keys():
        if tensor not in ours.tensors or tensor not in peers.tensors:
            differ[tensor] = 0.0
        elif _described(ours, tensor) != _described(peers, tensor):
            differ[tensor] = np.inf
        elif ours.raw(tensor).tobytes() != peers.raw(tensor).tobytes():
            a, b = ours.f32(tensor).astype(np.float64), peers.f32(tensor)
            differ[tensor] = float(np.abs(a - b).max() / np.abs(b).max())
    n_equal = len(ours.metadata) + len(ours.tensors) - len(differ)
    print(f"{name}: {n_equal} of {len(ours.metadata)} keys and {len(ours.tensors)} tensors equal")
    unexplained = {what: by for what, by in differ.items() if not _explained(name, what, by)}
    assert not unexplained


def _explained(name: str, what: str, by: float) -> bool:
    limits = (limit for model, pattern, limit, _ in REASONS if re.search(model, name) and re.fullmatch(pattern, what))
    return any(by <= limit for limit in limits)


def _described(file: GGUFFile, tensor: str) -> tuple[Any, ...]:
    return file.info(tensor).shape, file.info(tensor).type


def _equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return list(a) == list(b) if hasattr(a, "__getitem__") and not isinstance(a, str) else a == b
