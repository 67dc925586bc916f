"""Which modules do users of the package import from? What they offer is frozen, and has a place in the reference.

Everything else may change from one version to the next without a word.
"""

from __future__ import annotations

__all__ = ["PUBLIC_MODULES"]

PUBLIC_MODULES = (
    "dataguard",
    "dataguard.audit",
    "dataguard.core.address",
    "dataguard.core.digests",
    "dataguard.core.evidence",
    "dataguard.core.keys",
    "dataguard.core.manifest",
    "dataguard.core.permute",
    "dataguard.core.signals",
    "dataguard.core.spans",
    "dataguard.core.spikes",
    "dataguard.core.trainer",
    "dataguard.corpus",
    "dataguard.corpus.formats",
    "dataguard.errors",
    "dataguard.gate",
    "dataguard.gate.judged",
    "dataguard.gate.verdict",
    "dataguard.loader.loader",
    "dataguard.loader.peers",
    "dataguard.loader.rehearse",
    "dataguard.plan",
    "dataguard.replay",
    "dataguard.replay.answers",
    "dataguard.run",
    "dataguard.run.logs",
    "dataguard.score.profile",
    "dataguard.score.registry",
    "dataguard.score.spans",
    "dataguard.score.text",
    "dataguard.score.text_spans",
    "dataguard.score.tokens",
    "dataguard.torch",
    "dataguard.torch.canary",
    "dataguard.torch.describing",
    "dataguard.torch.experiment",
    "dataguard.torch.monitoring.decision",
    "dataguard.torch.stability",
    "dataguard.triage.alerts",
    "dataguard.triage.answers",
    "dataguard.triage.detect",
    "dataguard.triage.diagnose",
    "dataguard.triage.evidence",
    "dataguard.triage.localise",
    "dataguard.triage.preflight",
    "dataguard.triage.respond",
    "dataguard.triage.triage",
    "dataguard.triage.watching",
)
"""In byte order."""
