"""xLSTM."""

from family_rows import FamilyRows
from reference.xlstm import xlstm

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError

NAME = "xLSTMForCausalLM"
ROWS = FamilyRows(
    configs={
        "xlstm": {
            "architectures": [NAME], "hidden_size": 96, "num_hidden_layers": 3, "num_heads": 4, "qk_dim_factor": 0.5,
            "v_dim_factor": 1.0, "ffn_proj_factor": 1.667, "ffn_round_up_to_multiple_of": 32, "gate_soft_cap": 5.0,
            "output_logit_soft_cap": 6.0, "norm_eps": 1e-5, "eps": 1e-6, "use_bias": False,
            "autocast_kernel_dtype": "float32", "chunk_size": 64, "tie_word_embeddings": False,
        },
    },
    twins={NAME: xlstm},
    model_types={NAME: "xlstm"},
    errors=(
        ("xlstm", {"weight_mode": "fused"}, UnsupportedError, "weight_mode = .*only .single. is"),
        ("xlstm", {"use_bias": True}, UnsupportedError, "use_bias"),
        (
            "xlstm", {"num_heads": 5}, CheckpointError,
            "num_heads = 5.*heads that 48 keys and 96 values can be shared out to",
        ),
    ),
    notes=(("xlstm", {}, "no such architecture"),),
    refused=("xlstm",),
    sizes={"xlstm-7b": 6.865},
    loaded=("xlstm",),
)  # fmt: skip
