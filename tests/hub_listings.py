"""File names of published repositories, and the files that their names mean if no type is given.

{y} stands for each entry of the list after it. Sizes do not matter for the choice and are left out.
"""

from collections.abc import Iterator

BARTOWSKI = (
    "IQ2_M IQ3_M IQ3_XS IQ3_XXS IQ4_NL IQ4_XS Q2_K Q2_K_L Q3_K_L Q3_K_M Q3_K_S Q3_K_XL Q4_0 Q4_0_4_4 Q4_0_4_8 Q4_0_8_8 "
    "Q4_1 Q4_K_L Q4_K_M Q4_K_S Q5_K_L Q5_K_M Q5_K_S Q6_K Q6_K_L Q8_0 f16"
)
THEBLOKE = "Q2_K Q3_K_L Q3_K_M Q3_K_S Q4_0 Q4_K_M Q4_K_S Q5_0 Q5_K_M Q5_K_S Q6_K Q8_0"
UNSLOTH = (
    "IQ4_NL IQ4_XS Q2_K Q2_K_L Q3_K_M Q3_K_S Q4_0 Q4_1 Q4_K_M Q4_K_S Q5_K_M Q5_K_S Q6_K Q8_0 UD-IQ1_M UD-IQ1_S "
    "UD-IQ2_M UD-IQ2_XXS UD-IQ3_XXS UD-Q2_K_XL UD-Q3_K_XL UD-Q4_K_XL UD-Q5_K_XL UD-Q6_K_XL UD-Q8_K_XL"
)

# repository -> (patterns, the files that ORG/NAME means, its tag)
LISTINGS: dict[str, tuple[list[str], list[str], str]] = {
    "bartowski/Llama-3.2-3B-Instruct-GGUF": (
        [f"Llama-3.2-3B-Instruct-{{{BARTOWSKI}}}.gguf", "Llama-3.2-3B-Instruct.imatrix", "README.md"],
        ["Llama-3.2-3B-Instruct-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "bartowski/Meta-Llama-3.1-70B-Instruct-GGUF": (
        [
            "Meta-Llama-3.1-70B-Instruct-{IQ1_M IQ2_M Q2_K Q4_K_M Q5_K_S}.gguf",
            "Meta-Llama-3.1-70B-Instruct-Q8_0/Meta-Llama-3.1-70B-Instruct-Q8_0-{00001 00002}-of-00002.gguf",
            "Meta-Llama-3.1-70B-Instruct-Q6_K/Meta-Llama-3.1-70B-Instruct-Q6_K-{00001 00002}-of-00002.gguf",
        ],
        ["Meta-Llama-3.1-70B-Instruct-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "bartowski/ai21labs_AI21-Jamba-Reasoning-3B-GGUF": (
        [
            f"ai21labs_AI21-Jamba-Reasoning-3B-{{{BARTOWSKI.replace('f16', 'bf16')}}}.gguf",
            "ai21labs_AI21-Jamba-Reasoning-3B-imatrix.gguf",
        ],
        ["ai21labs_AI21-Jamba-Reasoning-3B-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "unsloth/Qwen3-30B-A3B-GGUF": (
        [
            f"Qwen3-30B-A3B-{{{UNSLOTH}}}.gguf",
            "BF16/Qwen3-30B-A3B-BF16-{00001 00002}-of-00002.gguf",
            "imatrix_unsloth.dat",
            "config.json",
        ],
        ["Qwen3-30B-A3B-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "unsloth/DeepSeek-R1-GGUF": (
        [
            "DeepSeek-R1-BF16/DeepSeek-R1.BF16-{00001 00002 00003}-of-00003.gguf",
            "DeepSeek-R1-UD-IQ1_S/DeepSeek-R1-UD-IQ1_S-{00001 00002 00003}-of-00003.gguf",
            "DeepSeek-R1-UD-Q2_K_XL/DeepSeek-R1-UD-Q2_K_XL-{00001 00002}-of-00002.gguf",
            "DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M-{00001 00002 00003}-of-00003.gguf",
            "DeepSeek-R1-Q8_0/DeepSeek-R1.Q8_0-{00001 00002}-of-00002.gguf",
        ],
        [f"DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M-0000{i}-of-00003.gguf" for i in (1, 2, 3)],
        "Q4_K_M",
    ),
    "unsloth/gemma-3-4b-it-GGUF": (
        [f"gemma-3-4b-it-{{{UNSLOTH}}}.gguf", "gemma-3-4b-it-BF16.gguf", "mmproj-{BF16 F16 F32}.gguf"],
        ["gemma-3-4b-it-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "ibm-granite/granite-4.0-h-tiny-GGUF": (
        ["granite-4.0-h-tiny-{Q2_K Q3_K_L Q3_K_M Q3_K_S Q4_0 Q4_1 Q4_K_M Q4_K_S Q5_0 Q5_K_M Q6_K Q8_0 f16}.gguf"],
        ["granite-4.0-h-tiny-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "ibm-granite/granite-embedding-107m-multilingual-GGUF": (
        ["granite-embedding-107m-multilingual-{f16 Q8_0}.gguf"],
        ["granite-embedding-107m-multilingual-Q8_0.gguf"],
        "Q8_0",
    ),
    "ggml-org/gemma-3-4b-it-GGUF": (
        ["gemma-3-4b-it-{Q4_K_M Q8_0 f16}.gguf", "mmproj-model-f16.gguf"],
        ["gemma-3-4b-it-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "ggml-org/gpt-oss-20b-GGUF": (["gpt-oss-20b-mxfp4.gguf"], ["gpt-oss-20b-mxfp4.gguf"], "MXFP4_MOE"),
    "ggml-org/SmolVLM-500M-Instruct-GGUF": (
        ["SmolVLM-500M-Instruct-{Q8_0 f16}.gguf", "mmproj-SmolVLM-500M-Instruct-{Q8_0 f16}.gguf"],
        ["SmolVLM-500M-Instruct-Q8_0.gguf"],
        "Q8_0",
    ),
    "ggml-org/models": (
        ["tinyllamas/stories15M-q4_0.gguf", "tinyllamas/stories260K.gguf", "bert-bge-small/ggml-model-f16.gguf"],
        ["tinyllamas/stories15M-q4_0.gguf"],
        "Q4_0",
    ),
    "TheBloke/Mistral-7B-Instruct-v0.2-GGUF": (
        [f"mistral-7b-instruct-v0.2.{{{THEBLOKE}}}.gguf", "config.json"],
        ["mistral-7b-instruct-v0.2.Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "microsoft/Phi-3-mini-4k-instruct-gguf": (
        ["Phi-3-mini-4k-instruct-{fp16 q4}.gguf", "Modelfile_q4"],
        ["Phi-3-mini-4k-instruct-q4.gguf"],
        "Q4_K_M",
    ),
    "Qwen/Qwen2.5-7B-Instruct-GGUF": (
        [
            "qwen2.5-7b-instruct-fp16-{00001 00002 00003 00004}-of-00004.gguf",
            "qwen2.5-7b-instruct-{q2_k q3_k_m}.gguf",
            "qwen2.5-7b-instruct-{q4_0 q4_k_m q5_0 q5_k_m q6_k}-{00001 00002}-of-00002.gguf",
            "qwen2.5-7b-instruct-q8_0-{00001 00002 00003}-of-00003.gguf",
        ],
        [f"qwen2.5-7b-instruct-q4_k_m-0000{i}-of-00002.gguf" for i in (1, 2)],
        "Q4_K_M",
    ),
    "Qwen/Qwen3-8B-GGUF": (["Qwen3-8B-{Q4_K_M Q5_0 Q5_K_M Q6_K Q8_0}.gguf"], ["Qwen3-8B-Q4_K_M.gguf"], "Q4_K_M"),
    "mradermacher/Falcon-H1-1.5B-Instruct-i1-GGUF": (
        [
            "Falcon-H1-1.5B-Instruct.i1-{IQ1_S IQ2_M IQ4_XS Q2_K_S Q4_1 Q4_K_S Q5_K_M Q6_K}.gguf",
            "imatrix.dat",
            "Falcon-H1-1.5B-Instruct.imatrix.gguf",
        ],
        ["Falcon-H1-1.5B-Instruct.i1-Q4_K_S.gguf"],
        "I1-Q4_K_S",
    ),
    "tiiuae/Falcon-H1-0.5B-Instruct-GGUF": (
        ["Falcon-H1-0.5B-Instruct-{BF16 Q2_K Q3_K_M Q4_0 Q4_K_M Q5_0 Q6_K Q8_0}.gguf"],
        ["Falcon-H1-0.5B-Instruct-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "LiquidAI/LFM2-1.2B-GGUF": (
        ["LFM2-1.2B-{F16 Q4_0 Q4_K_M Q5_K_M Q6_K Q8_0}.gguf"],
        ["LFM2-1.2B-Q4_K_M.gguf"],
        "Q4_K_M",
    ),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF": (
        ["smollm2-1.7b-instruct-q4_k_m.gguf"],
        ["smollm2-1.7b-instruct-q4_k_m.gguf"],
        "Q4_K_M",
    ),
    "nomic-ai/nomic-embed-text-v1.5-GGUF": (
        ["nomic-embed-text-v1.5.{Q2_K Q3_K_L Q4_0 Q4_K_S Q5_0 Q5_K_M Q6_K Q8_0 f16 f32}.gguf"],
        ["nomic-embed-text-v1.5.Q4_K_S.gguf"],
        "Q4_K_S",
    ),
    "CompendiumLabs/bge-small-en-v1.5-gguf": (
        ["bge-small-en-v1.5-{f16 f32 q4_k_m q8_0}.gguf"],
        ["bge-small-en-v1.5-q4_k_m.gguf"],
        "Q4_K_M",
    ),
    "jukofyork/DeepSeek-R1-DRAFT-0.6B-v3.0-GGUF": (
        ["DeepSeek-R1-DRAFT-0.6B-{32k 64k}-Q4_0.gguf"],
        [],
        "Q4_0",
    ),
    "someone/one-file-GGUF": (["model.gguf", "README.md"], ["model.gguf"], ""),
}


def names(patterns: list[str]) -> list[str]:
    """The file names that the patterns stand for."""
    return [name for pattern in patterns for name in _expanded(pattern)]


def _expanded(pattern: str) -> Iterator[str]:
    before, brace, rest = pattern.partition("{")
    if not brace:
        yield pattern
        return
    inside, _, after = rest.partition("}")
    for word in inside.split():
        for tail in _expanded(after):
            yield f"{before}{word}{tail}"
