"""The model families that can be converted: one file each, and this table by their names in config.json."""

from .afmoe import Afmoe
from .alice_ai import AliceAI
from .apertus import Apertus
from .arcee import Arcee
from .bailingmoe import BailingMoe
from .bailingmoe2 import BailingLinear, BailingMoe2, SarvamMoe
from .bailingmoe2_5 import BailingMoe25
from .bailingmoe3 import BailingMoe3
from .bert import Bert, BertClassifier, Roberta, RobertaClassifier
from .cohere2 import Cohere2, CohereCompass
from .command_r import CommandR
from .deepseek import DeepSeek
from .deepseek2 import DeepSeekV2, DeepSeekV3, Glm4MoeLite, Youtu
from .deepseek4 import DeepSeekV4
from .deepseek32 import DeepSeekV32
from .dots1 import Dots1
from .embedding_gemma import EmbeddingGemma
from .ernie4_5 import Ernie45, Ernie45Moe
from .exaone4 import Exaone4
from .exaone_moe import ExaoneMoe
from .falcon import Falcon
from .falcon_h1 import FalconH1
from .family import Family, Row
from .gear import Gear
from .gemma import Gemma, Gemma2, Gemma3, VaultGemma
from .gemma3n import Gemma3n
from .gemma4 import Gemma4
from .glm4 import Glm4
from .glm4_moe import Glm4Moe, SolarOpen
from .glm5_next import Glm5Next
from .glm_dsa import GlmDsa
from .gpt2 import Gpt2
from .gpt_oss import GptOss
from .gptneox import GptNeox
from .granite import Granite, Granite4Vision, HyperClovaX
from .granite_swa import GraniteMoeSwa, GraniteSwa
from .granitehybrid import Bamba, GraniteHybrid, GraniteMoe
from .hunyuan import Hunyuan, HunyuanMoe
from .hy_v3 import HyV3
from .hymba import Hymba
from .inkling import Inkling
from .inkling2 import Inkling2
from .inkling2_loop import Inkling2Loop
from .interns2_mobius import Mobius
from .jamba import Jamba
from .jet_nemotron import JetNemotron
from .kimi_k3 import KimiK3
from .kimi_linear import KimiLinear
from .laguna import Laguna
from .lara_mini import LaraMini
from .lfm2 import Lfm2, Lfm2Bidirectional, Lfm2Embedding, Lfm2Moe, Lfm2Vl
from .lfm3 import Lfm3, Lfm3Vl
from .llama import Helium, InternLm3, Llama, Ministral, Mistral, Mixtral, SmolVlm
from .llama4 import Llama4
from .longcat_flash import LongcatFlash, LongcatFlashNgram
from .mamba import Mamba
from .mamba2 import Mamba2
from .mellum import Mellum
from .minicpm import MiniCpm, MiniCpmSala
from .minicpm3 import MiniCpm3
from .minimax import MiniMax
from .minimax_m2 import MiniMaxM2
from .mistral3 import Mistral3
from .mistral4 import Mistral4
from .modern_bert import ModernBert, ModernBertClassifier
from .muse_glimmer import MuseGlimmer
from .nanochat import NanoChat
from .nemotron import Jais2, Nemotron
from .nemotron_h import NemotronH, NemotronHMoe, NemotronHPuzzle
from .olmo import FlexOlmo, Olmo2, Olmo3, Olmoe
from .olmo_hybrid import OlmoHybrid
from .openelm import OpenElm
from .phi3 import Phi3
from .phi4flash import Phi4Flash
from .phimoe import PhiMoe
from .plamo2 import Plamo2
from .qwen2 import Qwen2, Qwen2VL, Qwen3, Qwen3Classifier, Qwen3Moe, Qwen3VL
from .qwen2moe import Qwen2Moe
from .qwen3next import Qwen3Next
from .qwen4exp import Qwen4Exp
from .qwen35 import Qwen35, Qwen35Moe
from .recurrentgemma import RecurrentGemma
from .rwkv import Rwkv6, Rwkv7
from .rwkv4 import Rwkv4, Rwkv5
from .rwkv7a import Rwkv7a, Rwkv7b
from .rwkv_distilled import Arwkv7, Rwkv6Qwen2
from .seed_oss import SeedOss
from .smollm3 import SmolLM3
from .stablelm import StableLm
from .starcoder2 import Phi2, StarCoder2
from .xlstm import Xlstm
from .zamba import Zamba
from .zamba2 import Zamba2
from .zaya import Zaya

FAMILIES: tuple[type[Family], ...] = (
    Afmoe, AliceAI, Apertus, Arcee, Arwkv7, BailingLinear, BailingMoe, BailingMoe2, BailingMoe25, BailingMoe3, Bamba,
    Bert, BertClassifier, Cohere2, CohereCompass, CommandR, DeepSeek, DeepSeekV2, DeepSeekV3, DeepSeekV32, DeepSeekV4,
    Dots1, EmbeddingGemma, Ernie45, Ernie45Moe, Exaone4, ExaoneMoe, Falcon, FalconH1, FlexOlmo, Gear, Gemma, Gemma2,
    Gemma3, Gemma3n, Gemma4, Glm4, Glm4Moe, Glm4MoeLite, Glm5Next, GlmDsa, Gpt2, GptNeox, GptOss, Granite,
    Granite4Vision, GraniteHybrid, GraniteMoe, GraniteMoeSwa, GraniteSwa, Helium, Hunyuan, HunyuanMoe, HyV3, Hymba,
    HyperClovaX, Inkling, Inkling2, Inkling2Loop, InternLm3, Jais2, Jamba, JetNemotron, KimiK3, KimiLinear, Laguna,
    LaraMini, Lfm2, Lfm2Bidirectional, Lfm2Embedding, Lfm2Moe, Lfm2Vl, Lfm3, Lfm3Vl, Llama, Llama4, LongcatFlash,
    LongcatFlashNgram, Mamba, Mamba2, Mellum, MiniCpm, MiniCpm3, MiniCpmSala, MiniMax, MiniMaxM2, Ministral, Mistral,
    Mistral3, Mistral4, Mixtral, Mobius, ModernBert, ModernBertClassifier, MuseGlimmer, NanoChat, Nemotron, NemotronH,
    NemotronHMoe, NemotronHPuzzle, Olmo2, Olmo3, OlmoHybrid, Olmoe, OpenElm, Phi2, Phi3, Phi4Flash, PhiMoe, Plamo2,
    Qwen2, Qwen2Moe, Qwen2VL, Qwen3, Qwen35, Qwen35Moe, Qwen3Classifier, Qwen3Moe, Qwen3Next, Qwen3VL, Qwen4Exp,
    RecurrentGemma, Roberta, RobertaClassifier, Rwkv4, Rwkv5, Rwkv6, Rwkv6Qwen2, Rwkv7, Rwkv7a, Rwkv7b, SarvamMoe,
    SeedOss, SmolLM3, SmolVlm, SolarOpen, StableLm, StarCoder2, VaultGemma, Xlstm, Youtu, Zamba, Zamba2, Zaya,
)  # fmt: skip
# of two with the same name the first reads the config, and decides
ARCHITECTURES: dict[str, type[Family]] = {name: family for family in FAMILIES[::-1] for name in family.architectures}

__all__ = ["ARCHITECTURES", "FAMILIES", "Family", "Row"]
