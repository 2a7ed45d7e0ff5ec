"""Which matrices may have a factor in a tensor of its own."""

from hybrid.quant.ggml.scales import input_scale_of, scale_of


def test_names() -> None:
    assert scale_of("blk.11.ffn_down_exps.weight") == "blk.11.ffn_down_exps.scale"
    assert scale_of("blk.0.ffn_up_shexp.weight") == "blk.0.ffn_up_shexp.scale"
    assert scale_of("output.weight") == "output.scale"
    assert input_scale_of("blk.0.attn_qkv.weight") == "blk.0.attn_qkv.input_scale"
    for name in ("token_embd.weight", "blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.attn_q.bias"):
        assert scale_of(name) == input_scale_of(name) == ""
