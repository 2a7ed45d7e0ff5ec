"""The families that the core can run, by the name of their architecture in GGUF.

A family's module is imported when its first file is opened: importing all would be the slowest part of a start.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

from hybrid.quant.ggml.reader import GGUFFile

from .base import EncoderFamily, Family

# name in GGUF -> module and class
_HOMES = {
    "afmoe": "afmoe.Afmoe",
    "alice-ai": "alice_ai.AliceAI",
    "apertus": "apertus.Apertus",
    "arcee": "arcee.Arcee",
    "arwkv7": "rwkv_distilled.Arwkv7",
    "bailingmoe": "bailingmoe.BailingMoe",
    "bailingmoe-linear": "bailingmoe2.BailingLinear",
    "bailingmoe2": "bailingmoe2.BailingMoe2",
    "bailingmoe2-5": "bailingmoe2_5.BailingMoe25",
    "bailingmoe3": "bailingmoe3.BailingMoe3",
    "cohere2": "cohere2.Cohere2",
    "command-r": "command_r.CommandR",
    "deepseek": "deepseek.DeepSeek",
    "deepseek2": "deepseek2.DeepSeek2",
    "deepseek32": "deepseek32.DeepSeek32",
    "deepseek4": "deepseek4.DeepSeek4",
    "dots1": "dots1.Dots1",
    "ernie4_5": "ernie4_5.Ernie45",
    "ernie4_5-moe": "ernie4_5.Ernie45Moe",
    "exaone4": "exaone4.Exaone4",
    "exaone-moe": "exaone_moe.ExaoneMoe",
    "falcon": "falcon.Falcon",
    "falcon-h1": "falcon_h1.FalconH1",
    "gear": "gear.Gear",
    "flex-olmo": "olmo.FlexOlmo",
    "gemma": "gemma.Gemma",
    "gemma2": "gemma.Gemma2",
    "gemma3": "gemma.Gemma3",
    "gemma3n": "gemma3n.Gemma3n",
    "gemma4": "gemma4.Gemma4",
    "glm4": "glm4.Glm4",
    "glm4moe": "glm4_moe.Glm4Moe",
    "glm5-next": "glm5_next.Glm5Next",
    "glm-dsa": "glm_dsa.GlmDsa",
    "gpt-oss": "gpt_oss.GptOss",
    "gpt2": "gpt2.Gpt2",
    "gptneox": "gptneox.GptNeox",
    "granite": "granite.Granite",
    "granite_swa": "granite_swa.GraniteSwa",
    "granitehybrid": "granitehybrid.GraniteHybrid",
    "granitemoe": "granitehybrid.GraniteMoe",
    "hunyuan-dense": "hunyuan.Hunyuan",
    "hunyuan-moe": "hunyuan.HunyuanMoe",
    "jais2": "nemotron.Jais2",
    "hymba": "hymba.Hymba",
    "inkling": "inkling.Inkling",
    "inkling2": "inkling2.Inkling2",
    "inkling2_loop": "inkling2_loop.Inkling2Loop",
    "hy_v3": "hy_v3.HyV3",
    "interns2-mobius": "interns2_mobius.Mobius",
    "jamba": "jamba.Jamba",
    "jet-nemotron": "jet_nemotron.JetNemotron",
    "kimi-k3": "kimi_k3.KimiK3",
    "kimi-linear": "kimi_linear.KimiLinear",
    "laguna": "laguna.Laguna",
    "lara-mini": "lara_mini.LaraMini",
    "lfm2": "lfm2.Lfm2",
    "lfm2moe": "lfm2.Lfm2Moe",
    "lfm3": "lfm3.Lfm3",
    "llama": "llama.Llama",
    "llama4": "llama4.Llama4",
    "longcat-flash": "longcat_flash.LongcatFlash",
    "mamba": "mamba.Mamba",
    "mamba2": "mamba2.Mamba2",
    "minicpm": "minicpm.MiniCpm",
    "minicpm3": "minicpm3.MiniCpm3",
    "minicpm-sala": "minicpm.MiniCpmSala",
    "mellum": "mellum.Mellum",
    "minimax-01": "minimax.MiniMax",
    "minimax-m2": "minimax_m2.MiniMaxM2",
    "mistral3": "mistral3.Mistral3",
    "muse-glimmer": "muse_glimmer.MuseGlimmer",
    "mistral4": "mistral4.Mistral4",
    "nanochat": "nanochat.NanoChat",
    "nemotron": "nemotron.Nemotron",
    "nemotron_h": "nemotron_h.NemotronH",
    "nemotron_h_moe": "nemotron_h.NemotronHMoe",
    "olmo-hybrid": "olmo_hybrid.OlmoHybrid",
    "olmo2": "olmo.Olmo2",
    "olmoe": "olmo.Olmoe",
    "openelm": "openelm.OpenElm",
    "phi2": "starcoder2.Phi2",
    "phi3": "phi3.Phi3",
    "phi4flash": "phi4flash.Phi4Flash",
    "phimoe": "phimoe.PhiMoe",
    "plamo2": "plamo2.Plamo2",
    "qwen2": "qwen2.Qwen2",
    "qwen2moe": "qwen2moe.Qwen2Moe",
    "qwen2vl": "qwen2.Qwen2VL",
    "qwen3": "qwen2.Qwen3",
    "qwen35": "qwen35.Qwen35",
    "qwen35moe": "qwen35.Qwen35Moe",
    "qwen3moe": "qwen2.Qwen3Moe",
    "qwen3vl": "qwen2.Qwen3VL",
    "qwen3next": "qwen3next.Qwen3Next",
    "qwen4exp": "qwen4exp.Qwen4Exp",
    "recurrentgemma": "recurrentgemma.RecurrentGemma",
    "rwkv4": "rwkv4.Rwkv4",
    "rwkv5": "rwkv4.Rwkv5",
    "rwkv6": "rwkv.Rwkv6",
    "rwkv6qwen2": "rwkv_distilled.Rwkv6Qwen2",
    "rwkv7": "rwkv.Rwkv7",
    "rwkv7a": "rwkv7a.Rwkv7a",
    "seed_oss": "seed_oss.SeedOss",
    "smollm3": "smollm3.SmolLM3",
    "stablelm": "stablelm.StableLm",
    "starcoder2": "starcoder2.StarCoder2",
    "vaultgemma": "gemma.VaultGemma",
    "xlstm": "xlstm.Xlstm",
    "zamba": "zamba.Zamba",
    "zamba2": "zamba2.Zamba2",
    "zaya": "zaya.Zaya",
}


# the same of families that make no text, only embeddings and scores; a name that is above also is theirs in files
# whose attention is not causal
_HOMES_OF_ENCODERS = {
    "bert": "bert.Bert",
    "gemma-embedding": "embedding_gemma.EmbeddingGemma",
    "lfm2": "lfm2.Lfm2Bidirectional",
    "modern-bert": "modern_bert.ModernBert",
}

F = TypeVar("F", Family, EncoderFamily)


class _Families(Mapping[str, F], Generic[F]):
    """name -> family, made at the first access."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes
        self._made: dict[str, F] = {}

    def __getitem__(self, name: str) -> F:
        if name not in self._made:
            module, kind = self._homes[name].split(".")
            self._made[name] = getattr(import_module(f"{__name__}.{module}"), kind)()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def __contains__(self, name: object) -> bool:
        return name in self._homes


FAMILIES: Mapping[str, Family] = _Families[Family](_HOMES)
ENCODERS: Mapping[str, EncoderFamily] = _Families[EncoderFamily](_HOMES_OF_ENCODERS)


def encoder_of(gguf: GGUFFile) -> EncoderFamily | None:
    """The family of a file that is an encoder; None: it generates text, or is unknown."""
    arch = gguf.get("general.architecture", "")
    if not isinstance(arch, str):
        return None
    if arch in FAMILIES and gguf.get(f"{arch}.attention.causal", True) is not False:
        return None
    return ENCODERS.get(arch)


__all__ = ["ENCODERS", "FAMILIES", "EncoderFamily", "Family", "encoder_of"]
