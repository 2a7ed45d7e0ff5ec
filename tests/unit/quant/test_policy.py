"""Which tensor gets which type, name by name."""

import pytest
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.policy import TARGETS, Decision, Reason, decide

F32, F16, BF16, Q8_0, Q4_0 = GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0, GGMLType.Q4_0
UNTIED = {"token_embd.weight", "output.weight"}
TIED = {"token_embd.weight"}

MATRICES = [
    "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
    "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "blk.0.ssm_in.weight",
    "blk.0.ssm_out.weight", "blk.0.ffn_down_exps.weight", "blk.0.ffn_gate_shexp.weight",
]  # fmt: skip
NO_MATRICES = [
    "blk.0.attn_norm.weight", "blk.0.ssm_norm.weight", "output_norm.weight", "blk.0.ffn_gate_inp.weight",
    "blk.0.ssm_conv1d.weight", "blk.0.ssm_conv1d.bias", "blk.0.ssm_conv1d_q.weight", "blk.0.shortconv.conv.weight",
    "blk.0.ssm_a", "blk.0.ssm_d", "blk.0.ssm_dt.bias", "blk.0.attn_q.bias", "blk.0.time_mix_lerp_fused.weight",
    "blk.0.time_mix_w2.weight", "blk.0.attn_rel_b.weight", "position_embd.weight", "token_types.weight",
    "blk.0.altup_router.weight", "blk.0.laurel_l.weight", "per_layer_model_proj.weight", "v.patch_embd.weight",
]  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_matrices_are_as_asked(name: str, target: FileType) -> None:
    assert decide(name, (64, 96), F32, target, UNTIED) == Decision(GGMLType[target.name], Reason.ASKED)


@pytest.mark.parametrize("name", NO_MATRICES)
@pytest.mark.parametrize("source", [F32, F16, BF16], ids=lambda t: t.name)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_others_keep_their_type(name: str, source: GGMLType, target: FileType) -> None:
    assert decide(name, (64, 96), source, target, UNTIED) == Decision(source, Reason.LEFT_ALONE)


@pytest.mark.parametrize(("shape", "is_matrix"), [((64,), False), ((1, 64), False), ((1, 2, 32), True), ((1,), False)])
def test_vectors_are_no_matrices(shape: tuple[int, ...], is_matrix: bool) -> None:
    """ggml does not count outer dimensions of one."""
    expected = Decision(Q8_0, Reason.ASKED) if is_matrix else Decision(F32, Reason.LEFT_ALONE)
    assert decide("blk.0.ffn_up.weight", shape, F32, FileType.Q8_0, UNTIED) == expected


@pytest.mark.parametrize("name", ["blk.11.ssm_x.weight", "blk.0.ssm_dt.weight"])
def test_ssm_x_and_dt(name: str) -> None:
    for target in TARGETS:
        for source in (F32, F16, BF16):
            assert decide(name, (64, 32), source, target, TIED) == Decision(F32, Reason.SSM)
        asked = Decision(GGMLType[target.name], Reason.ASKED)
        assert decide(name, (64, 32), F32, target, TIED, keep_ssm_f32=False) == asked
    assert decide(name, (64, 32), Q8_0, FileType.Q4_0, TIED) == Decision(Q8_0, Reason.SSM)


@pytest.mark.parametrize(
    ("target", "names", "embedding", "output"),
    [
        (FileType.Q4_0, UNTIED, (Q4_0, Reason.ASKED), (Q8_0, Reason.OUTPUT)),
        (FileType.Q4_0, TIED, (Q8_0, Reason.OUTPUT), None),
        (FileType.Q8_0, UNTIED, (Q8_0, Reason.ASKED), (Q8_0, Reason.ASKED)),
        (FileType.F16, TIED, (F16, Reason.ASKED), None),
    ],
)
def test_output_matrix(
    target: FileType, names: set[str], embedding: tuple[GGMLType, Reason], output: tuple[GGMLType, Reason] | None
) -> None:
    assert decide("token_embd.weight", (500, 64), F32, target, names) == Decision(*embedding)
    if output:
        assert decide("output.weight", (500, 64), F32, target, names) == Decision(*output)


@pytest.mark.parametrize("name", ["blk.0.ffn_up.weight", "output.weight", "token_embd.weight"])
def test_rows_that_are_not_whole_blocks_become_f16(name: str) -> None:
    for target in (FileType.Q4_0, FileType.Q8_0):
        assert decide(name, (64, 48), F32, target, UNTIED) == Decision(F16, Reason.SHAPE)
    assert decide(name, (64, 48), F32, FileType.BF16, UNTIED) == Decision(BF16, Reason.ASKED)
    # mamba-130m: dt_rank 48
    dt = decide("blk.0.ssm_dt.weight", (1536, 48), F32, FileType.Q4_0, UNTIED, keep_ssm_f32=False)
    assert dt == Decision(F16, Reason.SHAPE)
