"""llama-quantize's mixes for the tensor names of hybrids and transformers, by its own rules."""

import pytest

from hybrid.quant.ggml.mixes import MIXES, RECIPES, MatrixRole, ModelTraits, fitting, mixed_types, part_of
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, TRAITS, FileType, GGMLType

Q2, Q3, Q4, Q5, Q6, Q8 = (GGMLType[f"Q{n}"] for n in ("2_K", "3_K", "4_K", "5_K", "6_K", "8_0"))
IQ4 = GGMLType.IQ4_XS


def shapes(
    n_layer: int, attention: list[int], down: str = "ffn_down", untied: bool = True, width: int = 512
) -> dict[str, tuple[int, ...]]:
    blocks = []
    for i in range(n_layer):
        mixer = ["attn_q", "attn_k", "attn_v", "attn_output"] if i in attention else ["ssm_in", "ssm_x", "ssm_out"]
        blocks += [f"blk.{i}.{name}.weight" for name in [*mixer, "ffn_up", down]]
    names = ["token_embd.weight", *blocks, *(["output.weight"] if untied else [])]
    return {name: (4, 768, width) if "_exps" in name else (768, width) for name in names}


def layers(types: dict[str, GGMLType], part: str, kind: GGMLType) -> list[int]:
    return [int(name.split(".")[1]) for name, its_kind in types.items() if part in name and its_kind is kind]


def test_q4_k_m_of_jamba_mini() -> None:
    """32 layers, 4 with attention, 16 experts: types per layer as llama-quantize prints them."""
    types = mixed_types(FileType.Q4_K_M, shapes(32, [4, 12, 20, 28], "ffn_down_exps"), ModelTraits(32, n_expert=16))
    assert layers(types, "attn_v", Q4) == [4, 12] and layers(types, "attn_v", Q6) == [20, 28]
    more = [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
    assert layers(types, "ffn_down_exps", Q6) == more
    assert types["output.weight"] is Q6 and types["token_embd.weight"] is Q4
    assert {types["blk.0.ssm_in.weight"], types["blk.4.attn_output.weight"], types["blk.0.ffn_up.weight"]} == {Q4}


def test_q4_k_m_of_jamba_3b() -> None:
    types = mixed_types(FileType.Q4_K_M, shapes(28, [7, 21], untied=False), ModelTraits(28))
    assert [types[f"blk.{i}.attn_v.weight"] for i in (7, 21)] == [Q4, Q6]
    assert types["token_embd.weight"] is Q6


@pytest.mark.parametrize(
    ("file_type", "most", "attn_v", "attn_output", "down"),
    [
        (FileType.Q3_K_S, Q3, [Q3] * 6, Q3, [Q3] * 16),
        (FileType.Q3_K_M, Q3, [Q5, Q5, Q4, Q4, Q4, Q4], Q4, [Q5] + [Q4] * 15),
        (FileType.Q3_K_L, Q3, [Q5] * 6, Q5, [Q5] * 16),
        (FileType.Q4_K_S, Q4, [Q5] * 4 + [Q4] * 2, Q4, [Q5] * 2 + [Q4] * 14),
        (FileType.Q4_K_M, Q4, [Q4, Q4, Q6, Q4, Q4, Q6], Q4, [Q6, Q6, Q4, Q4, Q6] + [Q4, Q4, Q6] * 3 + [Q6, Q6]),
        (FileType.Q5_K_S, Q5, [Q5] * 6, Q5, [Q5] * 16),
        (FileType.Q5_K_M, Q5, [Q5, Q5, Q6, Q5, Q5, Q6], Q5, [Q6, Q6, Q5, Q5, Q6] + [Q5, Q5, Q6] * 3 + [Q6, Q6]),
    ],
)
def test_every_mix(
    file_type: FileType, most: GGMLType, attn_v: list[GGMLType], attn_output: GGMLType, down: list[GGMLType]
) -> None:
    types = mixed_types(file_type, shapes(16, [1, 3, 5, 7, 9, 11]), ModelTraits(16))
    assert [kind for name, kind in types.items() if "attn_v" in name] == attn_v
    assert {kind for name, kind in types.items() if "attn_output" in name} == {attn_output}
    assert [kind for name, kind in types.items() if "ffn_down" in name] == down
    assert {kind for name, kind in types.items() if "ffn_up" in name or "ssm_" in name or "attn_q" in name} == {most}
    assert types["output.weight"] is Q6


def test_every_k_mix_has_a_table() -> None:
    assert {t.name for t in MIXES} == {t.name for t in FileType if t.name[2:5] == "_K_"}


def test_types_for_rows_that_are_not_whole_blocks() -> None:
    assert [fitting(kind, 160) for kind in (Q3, Q4, Q5, Q6)] == [
        GGMLType.Q4_0,
        GGMLType.Q5_0,
        GGMLType.Q5_1,
        GGMLType.Q8_0,
    ]
    assert fitting(GGMLType.IQ3_S, 96) is GGMLType.IQ4_NL and fitting(GGMLType.TQ2_0, 96) is GGMLType.Q4_0
    for kind in GGMLType:
        assert fitting(kind, 512) is kind
        assert fitting(kind, 48) is (kind if TRAITS[kind].block == 1 else GGMLType.F16)
        assert 64 % TRAITS[fitting(kind, 64)].block == 0


@pytest.mark.parametrize(
    ("file_type", "model", "attn_v", "attn_output", "down"),
    [
        (FileType.Q2_K, ModelTraits(16), Q3, Q3, [Q3] * 16),
        (FileType.Q2_K, ModelTraits(16, n_gqa=4), Q4, Q3, [Q3] * 16),
        (FileType.Q2_K_S, ModelTraits(16, n_gqa=4), Q4, Q2, [Q4] * 2 + [Q2] * 14),
        (FileType.IQ4_XS, ModelTraits(16), IQ4, IQ4, [Q5] * 2 + [IQ4] * 14),
        (FileType.IQ4_XS, ModelTraits(16, n_gqa=8, importance=True), Q5, IQ4, [IQ4] * 16),
        (FileType.Q4_0, ModelTraits(16), GGMLType.Q4_0, GGMLType.Q4_0, [GGMLType.Q4_0] * 16),
        (
            FileType.Q4_0,
            ModelTraits(16, importance=True),
            GGMLType.Q4_0,
            GGMLType.Q4_0,
            [GGMLType.Q4_1] * 2 + [GGMLType.Q4_0] * 14,
        ),
        (FileType.Q4_K_M, ModelTraits(16, n_expert=8), Q8, Q5, [Q6, Q6, Q4, Q4, Q6] + [Q4, Q4, Q6] * 3 + [Q6, Q6]),
        (FileType.Q3_K_L, ModelTraits(16, n_expert=8), Q8, Q3, [Q5] * 16),
        (FileType.Q6_K, ModelTraits(16, n_expert=8), Q8, Q6, [Q6] * 16),
    ],
)
def test_what_depends_on_the_model(
    file_type: FileType, model: ModelTraits, attn_v: GGMLType, attn_output: GGMLType, down: list[GGMLType]
) -> None:
    types = mixed_types(file_type, shapes(16, [1, 3]), model)
    assert {kind for name, kind in types.items() if "attn_v" in name} == {attn_v}
    assert {kind for name, kind in types.items() if "attn_output" in name} == {attn_output}
    assert {kind for name, kind in types.items() if "attn_k" in name} == {
        Q8 if model.n_expert == 8 else types["blk.0.ssm_in.weight"]
    }
    assert [kind for name, kind in types.items() if "ffn_down" in name] == down


@pytest.mark.parametrize(
    ("file_type", "width", "output", "embedding"),
    [
        (FileType.Q4_K_M, 512, Q6, Q4),
        (FileType.Q4_K_M, 384, Q8, Q4),
        (FileType.Q4_0, 96, Q6, GGMLType.Q4_0),
        (FileType.Q8_0, 512, Q8, Q8),
        (FileType.TQ2_0, 512, Q6, Q4),
        (FileType.MXFP4_MOE, 512, Q8, Q8),
    ],
)
def test_output_and_embedding(file_type: FileType, width: int, output: GGMLType, embedding: GGMLType) -> None:
    types = mixed_types(file_type, shapes(4, [1], width=width), ModelTraits(4))
    assert (types["output.weight"], types["token_embd.weight"]) == (output, embedding)
    assert (
        mixed_types(file_type, shapes(4, [1], untied=False, width=width), ModelTraits(4))["token_embd.weight"] is output
    )


I1, I2, I3 = GGMLType.IQ1_S, GGMLType.IQ2_XS, GGMLType.IQ3_S
XXS2, XXS3, S2 = GGMLType.IQ2_XXS, GGMLType.IQ3_XXS, GGMLType.IQ2_S


@pytest.mark.parametrize(
    ("file_type", "model", "q", "k", "v", "out", "down", "up", "output", "embedding"),
    [
        ("IQ1_S", ModelTraits(16), I1, I1, Q2, XXS2, [Q2] * 2 + [I1] * 14, [I1] * 16, Q5, Q2),
        ("IQ1_S", ModelTraits(16, n_expert=4), I1, I1, Q4, XXS2, [Q2] * 2 + [I1] * 14, [I1] * 16, Q5, Q2),
        ("IQ1_S", ModelTraits(16, n_expert=8), I1, Q4, Q4, Q5, [Q2] * 2 + [I1] * 14, [I1] * 16, Q5, Q2),
        ("IQ2_XXS", ModelTraits(16, n_gqa=4), XXS2, XXS2, Q4, XXS2, [Q2] * 2 + [XXS2] * 14, [XXS2] * 16, Q5, Q2),
        ("IQ2_S", ModelTraits(16), I2, I2, I3, I3, [I3] * 2 + [I2] * 14, [I2] * 16, Q5, I3),
        ("IQ2_M", ModelTraits(16, n_expert=8), S2, Q4, Q4, Q5, [I3] * 2 + [S2] * 14, [S2] * 16, Q5, I3),
        ("IQ3_XXS", ModelTraits(16, importance=True), S2, S2, XXS3, I3, [XXS3] * 16, [XXS3] * 16, Q5, I3),
        ("IQ3_XXS", ModelTraits(16), S2, S2, I3, I3, [Q4] * 2 + [Q3] * 14, [XXS3] * 16, Q5, I3),
        ("IQ3_XS", ModelTraits(16), XXS3, XXS3, I3, I3, [I3] * 16, [I3] * 2 + [XXS3] * 12 + [I3] * 2, Q6, I3),
        ("IQ3_S", ModelTraits(16, n_gqa=4), I3, I3, Q4, I3, [I3] * 16, [I3] * 16, Q6, I3),
        ("IQ3_M", ModelTraits(16), I3, I3, Q4, Q4, [Q4] * 2 + [I3] * 14, [I3] * 16, Q6, I3),
        (
            "IQ3_M",
            ModelTraits(16, n_expert=8),
            I3,
            Q8,
            Q8,
            Q5,
            [Q4, Q4, I3, I3, Q4] + [I3, I3, Q4] * 3 + [Q4, Q4],
            [I3] * 16,
            Q6,
            I3,
        ),
    ],
)
def test_the_smallest(
    file_type: str,
    model: ModelTraits,
    q: GGMLType,
    k: GGMLType,
    v: GGMLType,
    out: GGMLType,
    down: list[GGMLType],
    up: list[GGMLType],
    output: GGMLType,
    embedding: GGMLType,
) -> None:
    types = mixed_types(FileType[file_type], shapes(16, [1, 3]), model)
    names = ("blk.1.attn_q", "blk.1.attn_k", "blk.3.attn_v", "blk.3.attn_output", "output", "token_embd")
    assert [types[f"{name}.weight"] for name in names] == [q, k, v, out, output, embedding]
    assert [kind for name, kind in types.items() if "ffn_down" in name] == down
    assert [kind for name, kind in types.items() if "ffn_up" in name] == up
    assert types["blk.0.ssm_in.weight"] is FILE_TYPE_WEIGHT[FileType[file_type]]


def test_only_experts_are_mxfp4() -> None:
    types = mixed_types(FileType.MXFP4_MOE, shapes(4, [1], "ffn_down_exps"), ModelTraits(4, n_expert=4))
    assert {kind for name, kind in types.items() if "_exps" in name} == {GGMLType.MXFP4}
    assert {kind for name, kind in types.items() if "_exps" not in name} == {Q8}


def test_fused_attention_counts_as_values() -> None:
    assert [part_of(f"blk.0.{name}.weight") for name in ("attn_qkv", "attn_kv_b", "attn_v", "ssm_in")] == [
        MatrixRole.ATTN_V,
        MatrixRole.ATTN_V,
        MatrixRole.ATTN_V,
        MatrixRole.OTHER,
    ]
    assert part_of("blk.0.ffn_down_shexp.weight") is MatrixRole.FFN_DOWN


def test_every_recipe_names_its_file_type() -> None:
    for file_type, recipe in RECIPES.items():
        assert FILE_TYPE_WEIGHT[file_type] is recipe.most
