"""Which tensor gets which type, name by name."""

import re

import numpy as np
import pytest

from hybrid.quant.ggml.errors import Remedy, UsageError
from hybrid.quant.ggml.mixes import ModelTraits
from hybrid.quant.ggml.reader import TensorInfo
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, TRAITS, FileType, GGMLType
from hybrid.quant.policy import TARGETS, Decision, Options, Reason, SsmType, decide, model_of, type_named

F32, F16, BF16, Q8_0, Q4_0 = GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0, GGMLType.Q4_0
Q4_K, Q5_0, Q6_K = GGMLType.Q4_K, GGMLType.Q5_0, GGMLType.Q6_K
FLOATS = (FileType.F32, FileType.F16, FileType.BF16)

MATRICES = [
    "blk.0.attn_q.weight",
    "blk.0.ffn_gate.weight",
    "blk.0.ffn_up.weight",
    "blk.0.ssm_in.weight",
    "blk.0.ssm_out.weight",
    "blk.0.ffn_gate_shexp.weight",
    "blk.0.attn_conv.weight",
]
NO_MATRICES = [
    "blk.0.attn_norm.weight", "blk.0.ssm_norm.weight", "output_norm.weight", "blk.0.ffn_gate_inp.weight",
    "blk.0.ssm_conv1d.weight", "blk.0.ssm_conv1d.bias", "blk.0.ssm_conv1d_q.weight", "blk.0.shortconv.conv.weight",
    "blk.0.ssm_a", "blk.0.ssm_d", "blk.0.ssm_dt.bias", "blk.0.attn_q.bias", "blk.0.time_mix_lerp_fused.weight",
    "blk.0.time_mix_w2.weight", "blk.0.attn_rel_b.weight", "position_embd.weight", "token_types.weight",
    "blk.0.altup_router.weight", "blk.0.laurel_l.weight", "per_layer_model_proj.weight", "v.patch_embd.weight",
    "blk.0.ffn_router_in.weight", "blk.0.ffn_router_fc2.weight", "blk.0.attn_out_scale.bias",
]  # fmt: skip


def model(shape: tuple[int, ...], *names: str, source: GGMLType = F32) -> dict[str, TensorInfo]:
    return {name: TensorInfo(name, shape, source, 0, 0) for name in names}


def one(name: str, shape: tuple[int, ...], source: GGMLType, target: FileType, **options: object) -> Decision:
    """The decision for a tensor in a file with an output matrix."""
    tensors = model(shape, name, source=source) | model((8, 512), "output.weight")
    return decide(tensors, target, ModelTraits(4), Options(**options))[name]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_matrices_are_as_asked(name: str, target: FileType) -> None:
    asked = Q8_0 if target is FileType.MXFP4_MOE else FILE_TYPE_WEIGHT[target]
    if target is FileType.IQ3_XS and ("ffn_" in name or "attn_q." in name):
        asked = GGMLType.IQ3_XXS
    if target is FileType.IQ3_XXS and "attn_q." in name:
        asked = GGMLType.IQ2_S
    assert one(name, (64, 512), F32, target).type is asked


@pytest.mark.parametrize("name", NO_MATRICES)
@pytest.mark.parametrize("source", [F32, F16, BF16], ids=lambda t: t.name)
@pytest.mark.parametrize("target", [FileType.F16, FileType.Q8_0, FileType.Q4_K_M], ids=lambda t: t.name)
def test_others_keep_their_type(name: str, source: GGMLType, target: FileType) -> None:
    assert one(name, (64, 96), source, target) == Decision(source, Reason.LEFT_ALONE)


@pytest.mark.parametrize(("shape", "is_matrix"), [((64,), False), ((1, 64), False), ((1, 2, 32), True), ((1,), False)])
def test_vectors_are_no_matrices(shape: tuple[int, ...], is_matrix: bool) -> None:
    """ggml does not count outer dimensions of size 1."""
    expected = Decision(Q8_0, Reason.ASKED) if is_matrix else Decision(F32, Reason.LEFT_ALONE)
    assert one("blk.0.ffn_up.weight", shape, F32, FileType.Q8_0) == expected


@pytest.mark.parametrize("name", ["blk.11.ssm_x.weight", "blk.0.ssm_dt.weight"])
@pytest.mark.parametrize("source", [F32, F16, BF16], ids=lambda t: t.name)
def test_ssm_x_and_dt(name: str, source: GGMLType) -> None:
    for target in (*FLOATS, FileType.Q8_0, FileType.Q4_K_M):
        assert one(name, (64, 32), source, target) == Decision(F32, Reason.SSM)
        assert one(name, (64, 32), source, target, ssm_type=SsmType.F16) == Decision(F16, Reason.SSM)
        assert one(name, (64, 32), source, target, ssm_type=SsmType.Q8_0) == Decision(Q8_0, Reason.SSM)
        assert one(name, (64, 20), source, target, ssm_type=SsmType.Q8_0) == Decision(F16, Reason.SSM)
        chosen = {"tensor_types": ((r"ssm_(x|dt)", Q4_0),)}
        assert one(name, (64, 32), source, target, **chosen) == Decision(Q4_0, Reason.CHOSEN)
    like = {"ssm_type": SsmType.LIKE_LLAMA}
    assert one(name, (64, 512), source, FileType.Q4_K_M, **like) == Decision(Q4_K, Reason.ASKED)
    assert one(name, (64, 160), source, FileType.Q4_K_M, **like) == Decision(Q5_0, Reason.SHAPE, Q4_K)
    assert one(name, (64, 48), source, FileType.Q4_K_M, **like) == Decision(F16, Reason.SHAPE, Q4_K)
    assert one(name, (64, 32), Q8_0, FileType.Q4_0) == Decision(Q8_0, Reason.SSM)


def test_gates_of_low_rank() -> None:
    """Kimi's low-rank decay matrices stay F32; its gate's matrices, and a decay matrix of full rank, do not."""
    names = [f"blk.0.ssm_{name}.weight" for name in ("f_a", "f_b", "g_a", "g_b", "beta")]
    decided = decide(model((64, 512), *names), FileType.Q8_0, ModelTraits(4))
    assert [d.type for d in decided.values()] == [F32, F32, Q8_0, Q8_0, Q8_0]
    assert [d.reason for d in decided.values()][:2] == [Reason.SSM] * 2
    like = decide(model((64, 512), *names), FileType.Q8_0, ModelTraits(4), Options(ssm_type=SsmType.LIKE_LLAMA))
    assert {d.type for d in like.values()} == {Q8_0}
    alone = decide(model((64, 512), names[0], "blk.1.ssm_f_b.weight"), FileType.Q8_0, ModelTraits(4))
    assert [d.type for d in alone.values()] == [Q8_0, F32]


@pytest.mark.parametrize(
    ("target", "names", "embedding", "output"),
    [
        (FileType.Q4_0, ["token_embd.weight", "output.weight"], (Q4_0, Reason.ASKED), (Q6_K, Reason.OUTPUT)),
        (FileType.Q4_0, ["token_embd.weight"], (Q6_K, Reason.OUTPUT), None),
        (FileType.Q8_0, ["token_embd.weight", "output.weight"], (Q8_0, Reason.ASKED), (Q8_0, Reason.ASKED)),
        (FileType.TQ2_0, ["token_embd.weight", "output.weight"], (Q4_K, Reason.RECIPE), (Q6_K, Reason.OUTPUT)),
        (FileType.F16, ["token_embd.weight"], (F16, Reason.ASKED), None),
    ],
)
def test_output_matrix(
    target: FileType,
    names: list[str],
    embedding: tuple[GGMLType, Reason],
    output: tuple[GGMLType, Reason] | None,
) -> None:
    decided = decide(model((500, 512), *names), target, ModelTraits(2))
    assert decided["token_embd.weight"] == Decision(*embedding)
    if output:
        assert decided["output.weight"] == Decision(*output)


@pytest.mark.parametrize("name", ["blk.0.ffn_up.weight", "output.weight", "token_embd.weight"])
def test_rows_that_are_not_whole_blocks_become_f16(name: str) -> None:
    tensors = model((64, 48), "blk.0.ffn_up.weight", "output.weight", "token_embd.weight")
    for target in (FileType.Q4_0, FileType.Q8_0, FileType.Q4_K_M):
        decision = decide(tensors, target, ModelTraits(2))[name]
        assert (decision.type, decision.reason) == (F16, Reason.SHAPE)
        assert decision.unfit is not None and 48 % TRAITS[decision.unfit].block
    assert decide(tensors, FileType.BF16, ModelTraits(2))[name] == Decision(BF16, Reason.ASKED)


def test_pure_and_chosen_types() -> None:
    tensors = model((64, 512), "token_embd.weight", "output.weight", "blk.0.attn_v.weight", "blk.1.attn_v.weight")

    def types(target: FileType = FileType.Q3_K_M, **options: object) -> list[str]:
        return [d.type.name for d in decide(tensors, target, ModelTraits(2), Options(**options)).values()]  # type: ignore[arg-type]

    assert types() == ["Q3_K", "Q6_K", "Q5_K", "Q5_K"]
    assert types(pure=True) == ["Q3_K"] * 4
    assert types(leave_output=True) == ["Q3_K", "F32", "Q5_K", "Q5_K"]
    assert types(output_type=F32, embedding_type=Q8_0) == ["Q8_0", "F32", "Q5_K", "Q5_K"]
    # the first match counts, ignoring case; matched tensors do not count as the recipe's first
    chosen = ((r"BLK\.0\.", Q4_0), ("attn_v", F16))
    assert types(tensor_types=chosen) == ["Q3_K", "Q6_K", "Q4_0", "F16"]
    assert types(tensor_types=((r"blk\.0", Q4_0),)) == ["Q3_K", "Q6_K", "Q4_0", "Q5_K"]
    del tensors["output.weight"]
    assert types(output_type=Q8_0) == ["Q8_0", "Q5_K", "Q5_K"]


def test_options_that_fit_nothing() -> None:
    tensors = model((64, 96), "blk.0.ssm_in.weight", "blk.0.attn_norm.weight")

    def refused(*types: tuple[str, GGMLType]) -> tuple[str, Remedy | None, str]:
        with pytest.raises(UsageError) as caught:
            decide(tensors, FileType.Q8_0, ModelTraits(2), Options(tensor_types=types))
        return str(caught.value), caught.value.remedy, caught.value.value

    for pattern in ("ssm_on", "attn_norm"):
        says = f"no weight matrix of the model has a name that the pattern '{pattern}' matches."
        assert refused((pattern, Q4_0)) == (says, Remedy.LIST_TENSORS, "")
    assert re.match(r"the pattern '\(' of a tensor type is not a regular expression: .+\.$", refused(("(", Q4_0))[0])
    assert refused(("ssm", Q4_K)) == (
        "blk.0.ssm_in.weight: row of 96 values is not a multiple of 256 (Q4_K).",
        Remedy.TENSOR_TYPE,
        "blk.0.ssm_in.weight=Q5_0",
    )
    with pytest.raises(UsageError, match=r"^--x: Q9 is not a type that can be written\. Choose one of F32, F16, "):
        type_named("Q9", "--x")
    assert type_named(" q4_k", "--x") is Q4_K


@pytest.mark.parametrize(
    "name", ["hc_attn_fn", "indexer.proj", "indexer_compressor_gate", "attn_kv_a_mqa", "attn_k_b", "ssm_g_a"]
)
def test_what_an_architecture_leaves_alone(name: str) -> None:
    """llama-quantize leaves these alone in GLM-5.3-Flash; in other architectures they are ordinary matrices."""
    name = f"blk.0.{name}.weight"
    tensors = model((64, 512), name, source=BF16)
    assert decide(tensors, FileType.Q4_K_M, ModelTraits(4, arch="glm5-next"))[name] == Decision(BF16, Reason.LEFT_ALONE)
    assert decide(tensors, FileType.Q4_K_M, ModelTraits(4, arch="kimi-linear"))[name].type is Q4_K


@pytest.mark.parametrize("name", ["hc_ffn_fn", "attn_compressor_ape", "indexer_compressor_ape"])
def test_what_is_left_alone_of_deepseek_v4(name: str) -> None:
    """llama-quantize does quantize these small tensors."""
    tensors = model((64, 512), f"blk.0.{name}.weight", source=BF16)
    (decision,) = decide(tensors, FileType.Q4_K_M, ModelTraits(4, arch="deepseek4")).values()
    assert decision == Decision(BF16, Reason.LEFT_ALONE)


@pytest.mark.parametrize("name", ["output_norm_gate_up", "blk.0.attn_kv_a_norm_gate_down", "blk.0.nextn.enorm_gate_up"])
def test_gates_of_norms_are_left_alone(name: str) -> None:
    tensors = model((64, 512), f"{name}.weight", source=BF16)
    (decision,) = decide(tensors, FileType.Q4_K_M, ModelTraits(4, arch="gigachat35")).values()
    assert decision == Decision(BF16, Reason.LEFT_ALONE)


@pytest.mark.parametrize("name", ["blk.0.attn_q_a.weight", "blk.0.attn_q_b.weight"])
def test_what_an_architecture_has_eight_bits_for(name: str) -> None:
    tensors, of = model((64, 512), name, "output.weight"), ModelTraits(4, arch="glm5-next")
    assert decide(tensors, FileType.Q4_K_M, of)[name] == Decision(Q8_0, Reason.RECIPE)
    assert decide(tensors, FileType.BF16, of)[name] == Decision(BF16, Reason.ASKED)
    assert decide(tensors, FileType.Q4_K_M, of, Options(pure=True))[name].type is Q4_K
    assert decide(tensors, FileType.Q4_K_M, ModelTraits(4))[name].type is Q4_K


def test_model_of() -> None:
    """n_gqa is layer 0's, as in llama.cpp: 0 if a hybrid begins with a layer without attention."""
    keys = {"general.architecture": "jamba", "jamba.block_count": 32, "jamba.attention.head_count": 32}
    assert model_of(keys) == ModelTraits(32, n_gqa=1, arch="jamba")
    shared = {"jamba.attention.head_count_kv": np.array([0, 8], np.int32), "jamba.expert_count": 16}
    assert model_of(keys | shared, importance=True) == ModelTraits(
        32, n_expert=16, n_gqa=0, importance=True, arch="jamba"
    )
    assert model_of(keys | {"jamba.attention.head_count_kv": np.array([8, 0], np.int32)}).n_gqa == 4
    assert model_of({"general.architecture": "mamba", "mamba.attention.head_count": 0}) == ModelTraits(0, arch="mamba")
