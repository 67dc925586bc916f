"""Which facts can a file hold? All of them, as a file to fill in: every line a comment until it is true."""

from __future__ import annotations

__all__ = ["TEMPLATE"]

TEMPLATE = """\
# What a trainer says of itself, for `dataguard preflight FILE.toml`.
# Take the # off a line that you know to be true, and put the right value there. What is left out is not known.

[architecture]
# d_model = 4096
# num_layers = 32
# qk_norm = true                   # queries and keys of every attention are normalised
# qk_clip = false
# residual_init_std = 0.0025       # of projections that end in the residual stream: 0.02 / sqrt(2 * num_layers)
# embedding_init_std = 0.0156      # at most 1 / sqrt(d_model)
# z_loss = 1e-5                    # its weight; 0 where it is off
# norm_placement = "pre"           # "pre", "post" or "both"

[optimizer]
# name = "AdamW"
# clip_norm = 1.0                  # 0 where nothing is clipped
# beta1 = 0.9
# beta2 = 0.95
# epsilon = 1e-8
# weight_decay = 0.1               # of matrices; 0 where there is none
# decays_embeddings_or_norms = false

[schedule]
# total_steps = 250_000
# warmup_steps = 2_500
# peak_lr = 3e-4

[precision]
# compute = "bfloat16"             # "float32", "bfloat16", "float16" or "float8"
# loss_scaling = false
# master_weights = "float32"
# optimizer_state = "float32"

[data]
# anomaly_detection = true         # batches are judged as they come, or the corpus was audited
# lengths_checked = true
# mixture_checked = true
# held_out_sets = ["web", "code", "math"]

[monitoring]
# grad_norm_every_steps = 1
# spike_detector = true
# nonfinite_reduced = true         # NaN on one rank is known to all
# utilization_logged = true        # MFU

[checkpoints]
# every_steps = 500
# num_kept = 4                     # of the newest
# restore_tested = true
# seconds_per_step = 12.5
# num_nodes = 64

# What is planned to change, once for each change:
# [[changes]]
# step = 100_000                   # the first step that is trained otherwise
# what = "learning rate / 3"
"""
