"""The families that the core can run, by the name of their architecture in GGUF.

A family's module is imported when its first file is opened: importing all would be the slowest part of a start.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

from .base import EncoderFamily, Family
from .bert import Bert

# name in GGUF -> module and class
_HOMES = {
    "apertus": "apertus.Apertus",
    "arcee": "arcee.Arcee",
    "arwkv7": "rwkv_distilled.Arwkv7",
    "bailingmoe3": "bailingmoe3.BailingMoe3",
    "cohere2": "cohere2.Cohere2",
    "command-r": "command_r.CommandR",
    "deepseek2": "deepseek2.DeepSeek2",
    "deepseek4": "deepseek4.DeepSeek4",
    "dots1": "dots1.Dots1",
    "ernie4_5": "ernie4_5.Ernie45",
    "ernie4_5-moe": "ernie4_5.Ernie45Moe",
    "exaone4": "exaone4.Exaone4",
    "falcon": "falcon.Falcon",
    "falcon-h1": "falcon_h1.FalconH1",
    "gemma": "gemma.Gemma",
    "gemma2": "gemma.Gemma2",
    "gemma3": "gemma.Gemma3",
    "gemma3n": "gemma3n.Gemma3n",
    "gemma4": "gemma4.Gemma4",
    "glm4": "glm4.Glm4",
    "glm4moe": "glm4_moe.Glm4Moe",
    "glm5-next": "glm5_next.Glm5Next",
    "gpt-oss": "gpt_oss.GptOss",
    "gpt2": "gpt2.Gpt2",
    "gptneox": "gptneox.GptNeox",
    "granite": "granite.Granite",
    "granitehybrid": "granitehybrid.GraniteHybrid",
    "granitemoe": "granitehybrid.GraniteMoe",
    "hunyuan-dense": "hunyuan.Hunyuan",
    "hunyuan-moe": "hunyuan.HunyuanMoe",
    "jamba": "jamba.Jamba",
    "kimi-k3": "kimi_k3.KimiK3",
    "kimi-linear": "kimi_linear.KimiLinear",
    "lfm2": "lfm2.Lfm2",
    "lfm2moe": "lfm2.Lfm2Moe",
    "lfm3": "lfm3.Lfm3",
    "llama": "llama.Llama",
    "llama4": "llama4.Llama4",
    "mamba": "mamba.Mamba",
    "mamba2": "mamba2.Mamba2",
    "minimax-01": "minimax.MiniMax",
    "mistral3": "mistral3.Mistral3",
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
    "rwkv6": "rwkv.Rwkv6",
    "rwkv6qwen2": "rwkv_distilled.Rwkv6Qwen2",
    "rwkv7": "rwkv.Rwkv7",
    "seed_oss": "seed_oss.SeedOss",
    "smollm3": "smollm3.SmolLM3",
    "stablelm": "stablelm.StableLm",
    "starcoder2": "starcoder2.StarCoder2",
    "xlstm": "xlstm.Xlstm",
    "zamba": "zamba.Zamba",
    "zamba2": "zamba2.Zamba2",
    "zaya": "zaya.Zaya",
}


class _Families(Mapping[str, Family]):
    """name -> Family, made at the first access."""

    def __init__(self) -> None:
        self._made: dict[str, Family] = {}

    def __getitem__(self, name: str) -> Family:
        if name not in self._made:
            module, kind = _HOMES[name].split(".")
            self._made[name] = getattr(import_module(f"{__name__}.{module}"), kind)()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)

    def __contains__(self, name: object) -> bool:
        return name in _HOMES


FAMILIES: Mapping[str, Family] = _Families()
# Families that only make embeddings.
ENCODERS: dict[str, EncoderFamily] = {family.name: family for family in (Bert(),)}

__all__ = ["ENCODERS", "FAMILIES", "EncoderFamily", "Family"]
