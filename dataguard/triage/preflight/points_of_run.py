"""Points 14 to 22: are the data checked and the run watched?

What a run has seen itself goes before what its trainer says. Each point is a function of `Known` alone.
"""

from __future__ import annotations

from dataguard.triage.preflight.known import Found, Known

__all__ = [
    "checks_lengths",
    "checks_mixture",
    "detects_anomalies",
    "detects_spikes",
    "holds_out",
    "logs_grad_norm",
    "logs_utilization",
    "reduces_nonfinite",
    "saves_checkpoints",
]

MOST_STEPS_APART = 50
MOST_SHARE_OFF = 0.01
"""How far a source's share may be from what was asked: one point of a hundred, as finely as mixtures are given."""


def detects_anomalies(known: Known) -> Found:
    """Batches are judged as they are delivered, or the corpus was audited before."""
    seen = known.seen
    if seen is not None and seen.policy is not None:
        return Found(passes=True, reason="a policy judges every sample", fact=f"the run's policy is {seen.policy}")
    said = known.facts.data.anomaly_detection
    if said is None:
        more = "" if seen is None else "; no policy judges the run's samples"
        return Found(passes=None, reason=f"anomaly_detection not said{more}")
    return _as_said("anomaly_detection", said, yes="data are checked", no="nothing checks the data")


def checks_lengths(known: Known) -> Found:
    """The distribution of lengths was looked at, and has no extreme outliers (row C26)."""
    seen = known.seen
    if seen is not None and seen.fixed_length is not None:
        fact = f"the run's samples have {seen.fixed_length:,} tokens each"
        return Found(passes=True, reason="all samples are of one length", fact=fact)
    if seen is not None and seen.has_profile and "length_outlier" in seen.length_signals:
        fact = "the run's policy judges length_outlier against its reference profile"
        return Found(passes=True, reason="lengths are held against those of an audit", fact=fact)
    if seen is not None and any(name != "length_outlier" for name in seen.length_signals):
        fact = f"the run's policy judges {', '.join(seen.length_signals)}"
        return Found(passes=True, reason="lengths are judged", fact=fact)
    said = known.facts.data.lengths_checked
    if said is None:
        more = (
            "; without a reference profile no length is an outlier" if seen is not None and seen.length_signals else ""
        )
        return Found(passes=None, reason=f"lengths_checked not said{more}")
    return _as_said("lengths_checked", said, yes="lengths were checked", no="lengths were not checked")


def checks_mixture(known: Known) -> Found:
    """Sources are mixed as they were meant to be (row C26): what was delivered is held against what was asked."""
    mixture = None if known.seen is None else known.seen.mixture
    total = 0 if mixture is None else sum(mixture.delivered.values())
    if mixture is None or not total:
        said = known.facts.data.mixture_checked
        if said is None:
            more = "" if known.seen is None else "; the run has delivered nothing yet"
            return Found(passes=None, reason=f"mixture_checked not said{more}")
        return _as_said("mixture_checked", said, yes="the mixture was checked", no="the mixture was not checked")
    off = {name: mixture.delivered.get(name, 0) / total - share for name, share in mixture.asked.items()}
    allowed = max(MOST_SHARE_OFF, mixture.allowance / total)
    worst = max(off, key=lambda name: (round(abs(off[name]), 12), -mixture.asked[name]))  # of two, the rarer one
    asked, got = mixture.asked[worst], mixture.delivered.get(worst, 0) / total
    told = f"of {total:,} samples {got:.2%} are of {worst}, and {asked:.2%} were asked for"
    passes = abs(off[worst]) <= allowed
    reason = f"no source is off by more than {allowed:.2%}" if passes else f"{worst} is off by {off[worst]:+.2%}"
    return Found(passes=passes, reason=reason, fact=told)


def holds_out(known: Known) -> Found:
    """Fixed held-out sets, one a domain: the loss of the whole does not show what one of them loses."""
    seen, said = known.seen, known.facts.data.held_out_sets
    names = tuple(dict.fromkeys((*(() if seen is None else seen.streams), *(said or ()))))
    num_sources = 0 if seen is None else len(seen.sources)
    if not names:
        if said is None:
            more = "" if seen is None else "; the run has no named streams"
            return Found(passes=None, reason=f"held_out_sets not said{more}")
        return Found(passes=False, reason="there are none", fact="held_out_sets = []")
    fact = f"held-out sets {', '.join(names)}"
    needed = num_sources or 2
    if len(names) < needed:
        of = f"for {num_sources:,} sources" if num_sources else "for all domains"
        return Found(passes=False, reason=f"{len(names):,} {of}: one a domain is asked for", fact=fact)
    return Found(passes=True, reason=f"{len(names):,} sets", fact=fact)


def logs_grad_norm(known: Known) -> Found:
    """The gradient norm, before clipping, is logged at least every 50 steps."""
    seen = known.seen
    if seen is not None and seen.grad_norm_every is not None:
        every, gap = seen.grad_norm_every, seen.grad_norm_gap or 0
        fact = f"the run logged grad_norm at {seen.num_grad_norms:,} steps, at most {gap:,} apart"
        passes = every <= MOST_STEPS_APART
        return Found(passes=passes, reason=f"every {every:g} steps, and 50 is the most", fact=fact)
    if seen is not None and seen.has_telemetry and seen.num_steps > 2 * MOST_STEPS_APART:
        fact = f"the run completed {seen.num_steps:,} steps and logged grad_norm at {seen.num_grad_norms:,}"
        return Found(passes=False, reason="it logs other values and no gradient norm", fact=fact)
    every = known.facts.monitoring.grad_norm_every_steps or 0
    if not every:
        return Found(passes=None, reason="grad_norm_every_steps not said")
    passes = every <= MOST_STEPS_APART
    return Found(
        passes=passes, reason=f"every {every:,} steps, and 50 is the most", fact=f"grad_norm_every_steps = {every:g}"
    )


def detects_spikes(known: Known) -> Found:
    """A detector looks at the loss while the run goes on, and alerts.

    Mended: the list's threshold, 0.1 nats between two windows, raises 11 alarms in 1,000 steps of real curves, and a
    spike that was fatal was 0.06 nats high; what is asked for is a detector, not that number.
    """
    if known.seen is not None and known.seen.detector is not None:
        return Found(passes=True, reason="a detector notes events", fact=f"the run's detector is {known.seen.detector}")
    said = known.facts.monitoring.spike_detector
    if said is None:
        return Found(passes=None, reason="spike_detector not said")
    return _as_said("spike_detector", said, yes="a detector is on", no="nobody is told of a spike")


def reduces_nonfinite(known: Known) -> Found:
    """NaN and infinity on one rank are known to all of them."""
    said = known.facts.monitoring.nonfinite_reduced
    if said is None:
        return Found(passes=None, reason="nonfinite_reduced not said")
    yes, no = (
        "all ranks know of NaN and infinity on one",
        "a rank with NaN is alone with it until gradients are reduced",
    )
    return _as_said("nonfinite_reduced", said, yes=yes, no=no)


def saves_checkpoints(known: Known) -> Found:
    """A checkpoint every K steps, and one of them was restored: a run that went on from one has shown it."""
    seen, facts = known.seen, known.facts.checkpoints
    every, source = facts.every_steps, "every_steps = {}"
    if seen is not None and seen.checkpoint_every is not None:
        every, source = seen.checkpoint_every, f"the run noted {seen.num_checkpoints:,} checkpoints, {{}} steps apart"
    restored, by = facts.restore_tested, f"restore_tested = {str(facts.restore_tested).lower()}"
    if seen is not None and seen.resumed is not None:
        attempt, step = seen.resumed
        restored, by = True, f"attempt {attempt} went on at step {step:,} from an earlier one's state"
    told = [source.format(f"{every:,}")] if every is not None else []
    fact = ", ".join([*told, *([by] if restored is not None else [])]) or None
    if restored is False:
        return Found(passes=False, reason="no restore was tested", fact=fact)
    if every is None or restored is None:
        missing = [name for name, value in (("every_steps", every), ("restore_tested", restored)) if value is None]
        return Found(passes=None, reason=f"{' and '.join(missing)} not said", fact=fact)
    return Found(passes=True, reason=f"every {every:,} steps, and one was restored", fact=fact)


def logs_utilization(known: Known) -> Found:
    """Model FLOP utilization is logged: a sudden drop is hardware."""
    if known.seen is not None and known.seen.utilization:
        names = ", ".join(known.seen.utilization)
        return Found(passes=True, reason="it is logged", fact=f"the run's telemetry has {names}")
    said = known.facts.monitoring.utilization_logged
    if said is None:
        return Found(passes=None, reason="utilization_logged not said")
    return _as_said("utilization_logged", said, yes="it is logged", no="it is not logged")


def _as_said(name: str, said: bool, *, yes: str, no: str) -> Found:  # noqa: FBT001 - it is the fact
    return Found(passes=said, reason=yes if said else no, fact=f"{name} = {str(said).lower()}")
