"""Points 1 to 13: does the model, its optimizer and its number types hold what is known to keep training stable?

Each point is a function of `Known` alone. A fact that was not said is not known, and never a default. Numbers and the
words of the list are those of the second seed document; where it is mended, the docstring says how.
"""

from __future__ import annotations

import math

from dataguard.triage.preflight.known import Found, Known

__all__ = [
    "clips_gradients",
    "computes_in_bfloat16",
    "decays_matrices",
    "embedding_init",
    "epsilon",
    "has_qk_norm",
    "has_z_loss",
    "loss_scaling_fits",
    "master_weights",
    "normalises_before",
    "residual_init",
    "spares_embeddings",
    "warms_up",
]

WARMUP_SHARE = 0.01
_BASE_STD = 0.02
_MEASURED = 1.05
"""What a measured standard deviation may be above its aim: that of 1,000 numbers is off by 2 % (one sigma)."""


def has_qk_norm(known: Known) -> Found:
    """QK-norm in all attention layers, or else QK-clip, which Muon cannot do without.

    >>> from dataguard.core.trainer import ArchitectureFacts, TrainerFacts
    >>> has_qk_norm(Known(facts=TrainerFacts(architecture=ArchitectureFacts(qk_norm=True)))).passes
    True
    """
    norm, clip = known.facts.architecture.qk_norm, known.facts.architecture.qk_clip
    fact = _told(qk_norm=norm, qk_clip=clip)
    if norm:
        return Found(passes=True, reason="queries and keys are normalised", fact=fact)
    if clip:
        return Found(passes=True, reason="QK-clip holds attention logits", fact=fact)
    if norm is None or clip is None:
        what = [name for name, value in (("qk_norm", norm), ("qk_clip", clip)) if value is None]
        return _unknown(*what, fact=fact)
    muon = "muon" in (known.facts.optimizer.name or "").lower()
    more = "; under Muon one of them is mandatory" if muon else ""
    return Found(passes=False, reason=f"nothing keeps attention logits from growing{more}", fact=fact)


def residual_init(known: Known) -> Found:
    """Projections into the residual stream begin scaled by 1/sqrt(2 L).

    Mended: 1/sqrt(2 L) is a factor, not the standard deviation itself (the seed's own code takes it for one, 50 times
    too large). What is left when the factor is taken out, std * sqrt(2 L), may be .02, or 1/sqrt(d_model) where the
    width is known: 2 L such projections of unit-size inputs then add up to a stream of O(1).
    """
    model = known.facts.architecture
    std, layers = model.residual_init_std, model.num_layers
    fact = _told(residual_init_std=std, num_layers=layers, d_model=model.d_model)
    if std is None or (layers is None and std > 0):
        return _unknown(
            *(["residual_init_std"] if std is None else []), *(["num_layers"] if layers is None else []), fact=fact
        )
    if std == 0:
        return Found(passes=True, reason="they begin at zero", fact=fact)
    assert layers is not None
    base = std * math.sqrt(2 * layers)
    most = max(_BASE_STD, 0.0 if model.d_model is None else model.d_model**-0.5)
    told = f"{std:.3g} times sqrt(2 x {layers}) is {base:.3g}"
    if base <= most * _MEASURED:
        return Found(passes=True, reason=f"{told}, at most {most:.3g}", fact=fact)
    aim = most / math.sqrt(2 * layers)
    return Found(passes=False, reason=f"{told}, above {most:.3g}: scale it down to {aim:.3g}", fact=fact)


def embedding_init(known: Known) -> Found:
    """Embeddings begin with a standard deviation of at most 1/sqrt(d_model)."""
    std, width = known.facts.architecture.embedding_init_std, known.facts.architecture.d_model
    fact = _told(embedding_init_std=std, d_model=width)
    if std is None or width is None:
        missing = [name for name, value in (("embedding_init_std", std), ("d_model", width)) if value is None]
        return _unknown(*missing, fact=fact)
    most = width**-0.5
    passes = std <= most * _MEASURED
    word = "at most" if passes else "above"
    return Found(passes=passes, reason=f"{std:.3g} is {word} 1/sqrt({width:,}) = {most:.3g}", fact=fact)


def has_z_loss(known: Known) -> Found:
    """Z-loss is on: about 1e-5 for a language-model head, 1e-4 for a router (and in the first document)."""
    weight = known.facts.architecture.z_loss
    fact = _told(z_loss=weight)
    if weight is None:
        return _unknown("z_loss")
    if weight <= 0:
        return Found(passes=False, reason="nothing holds the output logits: 1e-5 to 1e-4 is usual", fact=fact)
    more = "" if weight <= 1e-3 else ", far above the usual 1e-5 to 1e-4"
    return Found(passes=True, reason=f"its weight is {weight:g}{more}", fact=fact)


def normalises_before(known: Known) -> Found:
    """Norms stand before attention and feed-forward, not after the residual addition."""
    placement = known.facts.architecture.norm_placement
    if placement is None:
        return _unknown("norm_placement")
    if placement == "post":
        return Found(passes=False, reason="norms stand behind the residual addition", fact="norm_placement = post")
    reason = "norms stand before" if placement == "pre" else "norms stand before and behind"
    return Found(passes=True, reason=f"{reason} attention and feed-forward", fact=f"norm_placement = {placement}")


def clips_gradients(known: Known) -> Found:
    """The global gradient norm is clipped at 1.0 or below."""
    norm = known.facts.optimizer.clip_norm
    fact = _told(clip_norm=norm)
    if norm is None:
        return _unknown("clip_norm")
    if norm <= 0:
        return Found(passes=False, reason="gradients are not clipped", fact=fact)
    passes = norm <= 1.0
    return Found(passes=passes, reason=f"clipped at {norm:g}, {'at most' if passes else 'above'} 1.0", fact=fact)


def epsilon(known: Known) -> Found:
    """Adam's epsilon is 1e-8 to 1e-5, and 1e-6 to 1e-5 once spikes were seen (Molybog et al., 2023)."""
    value = known.facts.optimizer.epsilon
    if value is None:
        return _unknown("epsilon")
    fact = _told(epsilon=value)
    spikes = 0 if known.seen is None else known.seen.num_damaging
    least = 1e-6 if spikes else 1e-8
    if value < least * (1 - 1e-9):
        why = (
            f"{spikes:,} event{'s' * (spikes != 1)} that may leave damage noted: raise it to 1e-6 to 1e-5"
            if spikes
            else "the usual is 1e-8"
        )
        return Found(passes=False, reason=f"{value:g} is below {least:g}; {why}", fact=fact)
    if value > 1e-5 * (1 + 1e-9):
        return Found(passes=False, reason=f"{value:g} is above 1e-5, and damps ordinary updates", fact=fact)
    more = "; raise it to 1e-6 to 1e-5 if spikes are seen" if value < 1e-6 else ""
    return Found(passes=True, reason=f"{value:g} is within {least:g} to 1e-5{more}", fact=fact)


def warms_up(known: Known) -> Found:
    """Warm-up takes at least 1 % of all steps.

    Mended: the list's figure beside it ("for a 1T-token run at least 1B tokens") is 0.1 %, the very value that its
    second story blames; 1 % of 1T tokens is 10B.
    """
    warmup, total = known.facts.schedule.warmup_steps, known.facts.schedule.total_steps
    fact = _told(warmup_steps=warmup, total_steps=total)
    if total is None or warmup is None:
        if warmup == 0:
            return Found(passes=False, reason="there is no warm-up", fact=fact)
        missing = [name for name, value in (("warmup_steps", warmup), ("total_steps", total)) if value is None]
        return _unknown(*missing, fact=fact)
    least = math.ceil(total * WARMUP_SHARE - 1e-9)
    passes = warmup >= least
    told = f"{warmup:,} of {total:,} steps is {warmup / total:.2%}"
    return Found(passes=passes, reason=f"{told}; 1 % is {least:,} steps", fact=fact)


def decays_matrices(known: Known) -> Found:
    """Weight decay is not 0; 0.1 is usual."""
    decay = known.facts.optimizer.weight_decay
    if decay is None:
        return _unknown("weight_decay")
    reason = f"weights decay by {decay:g}" if decay > 0 else "nothing holds the weights: 0.1 is usual"
    return Found(passes=decay > 0, reason=reason, fact=_told(weight_decay=decay))


def spares_embeddings(known: Known) -> Found:
    """Embeddings and parameters of norms are not decayed."""
    decays = known.facts.optimizer.decays_embeddings_or_norms
    if decays is None and known.facts.optimizer.weight_decay == 0:
        return Found(passes=True, reason="nothing is decayed", fact="weight_decay = 0")
    if decays is None:
        return _unknown("decays_embeddings_or_norms")
    reason = "embeddings or norms are decayed with the rest" if decays else "embeddings and norms are left out of decay"
    return Found(passes=not decays, reason=reason, fact=_told(decays_embeddings_or_norms=decays))


def computes_in_bfloat16(known: Known) -> Found:
    """Forward and backward passes in bfloat16 (or float32), not in float16, which ends at 65,504."""
    compute = known.facts.precision.compute
    if compute is None:
        return _unknown("compute")
    reasons = {
        "bfloat16": "bfloat16 has the range of float32",
        "float32": "float32 has the range of bfloat16, and more digits",
        "float16": "float16 ends at 65,504: attention logits and activations overflow",
        "float8": "8-bit numbers end below float16's 65,504 and need scales of their own",
    }
    return Found(passes=compute in ("bfloat16", "float32"), reason=reasons[compute], fact=f"compute = {compute}")


def loss_scaling_fits(known: Known) -> Found:
    """No loss scaling with bfloat16, whose range does not need it; float16 cannot do without."""
    compute, scaling = known.facts.precision.compute, known.facts.precision.loss_scaling
    fact = _told(compute=compute, loss_scaling=scaling)
    if compute is None or scaling is None:
        missing = [name for name, value in (("compute", compute), ("loss_scaling", scaling)) if value is None]
        return _unknown(*missing, fact=fact)
    if compute in ("float16", "float8"):
        reason = f"{compute} with loss scaling" if scaling else f"{compute} without loss scaling loses small gradients"
        return Found(passes=scaling, reason=reason, fact=fact)
    reason = f"{compute} does not need the loss scaling that is on" if scaling else f"{compute}, and no loss scaling"
    return Found(passes=not scaling, reason=reason, fact=fact)


def master_weights(known: Known) -> Found:
    """Master weights in float32: updates below half a digit of bfloat16 are lost."""
    kept = known.facts.precision.master_weights
    if kept is None:
        return _unknown("master_weights")
    passes = kept == "float32"
    reason = "updates are added in float32" if passes else f"small updates are lost in {kept}"
    return Found(passes=passes, reason=reason, fact=f"master_weights = {kept}")


def _unknown(*missing: str, fact: str | None = None) -> Found:
    return Found(passes=None, reason=f"{' and '.join(missing)} not said", fact=fact)


def _told(**facts: object) -> str | None:
    """Facts that are known, as they stand in a file."""
    return ", ".join(f"{name} = {_shown(value)}" for name, value in facts.items() if value is not None) or None


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
