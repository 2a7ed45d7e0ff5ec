"""Keys of xLSTM."""

from .hparams import Hparams, key


class XlstmHparams(Hparams):
    n_ff: int = key("feed_forward_length", minimum=1)
    n_head: int = key("mlstm.head_count", minimum=1)
    d_k: int = key("mlstm.key_length", minimum=1)
    d_v: int = key("mlstm.value_length", minimum=1)
    gate_cap: float = key("mlstm.gate_softcapping", minimum=1e-3)
    mlstm_eps: float = key("mlstm.epsilon")
    logit_cap: float = key("final_logit_softcapping", 0.0)
