"""Parts that keep a training run stable, each usable on any model by import, without a base class.

In come modules, tensors and optimizers of the user's own; out go the same, mended, or numbers about them. Each says
where it is from, and what it does not do.

- Attention: `QKNormAttention`, `attn_logit_softcap`, `qk_clip_` with `attention_logits`.
- Weights: `init_transformer_weights`, `clip_embedding_norm_`.
- The loss: `z_loss`.
- The step: `train_step` with `GradientHistory`, `AnomalyJudge` and `StepOutcome`; `nonfinite_ranks`.
- Numbers: `peak_learning_rate`, `largest_update_ratio`, `usual_update_ratio`, `update_amplification`.
- Looking at one microbatch: `probe`.
"""

from dataguard.torch.stability.embedding import clip_embedding_norm_
from dataguard.torch.stability.history import GradientHistory
from dataguard.torch.stability.initial import InitAccount, init_transformer_weights
from dataguard.torch.stability.judge import AnomalyJudge, BatchJudge
from dataguard.torch.stability.log_partition import z_loss
from dataguard.torch.stability.logits import attention_logits
from dataguard.torch.stability.outcome import StepOutcome, StepResult
from dataguard.torch.stability.probe import probe
from dataguard.torch.stability.probe_report import ProbeReport
from dataguard.torch.stability.qk_clip import qk_clip_
from dataguard.torch.stability.qk_norm import QKNormAttention
from dataguard.torch.stability.ranks import nonfinite_ranks
from dataguard.torch.stability.rates import (
    largest_update_ratio,
    peak_learning_rate,
    update_amplification,
    usual_update_ratio,
)
from dataguard.torch.stability.softcap import attn_logit_softcap
from dataguard.torch.stability.step import train_step

__all__ = [
    "AnomalyJudge",
    "BatchJudge",
    "GradientHistory",
    "InitAccount",
    "ProbeReport",
    "QKNormAttention",
    "StepOutcome",
    "StepResult",
    "attention_logits",
    "attn_logit_softcap",
    "clip_embedding_norm_",
    "init_transformer_weights",
    "largest_update_ratio",
    "nonfinite_ranks",
    "peak_learning_rate",
    "probe",
    "qk_clip_",
    "train_step",
    "update_amplification",
    "usual_update_ratio",
    "z_loss",
]
