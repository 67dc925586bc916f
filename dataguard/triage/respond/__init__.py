"""From a verdict to what to type: in come a run, an event and its verdict, out comes a `Response`; `apply_response`
writes its skips and quarantines, and nothing else is ever done from here.
"""

from __future__ import annotations

from dataguard.triage.respond.answers import (
    Applied,
    Change,
    Command,
    Exports,
    QuarantineAdvice,
    Response,
    ResumeAdvice,
    SkipAdvice,
)
from dataguard.triage.respond.applying import apply_response
from dataguard.triage.respond.configuring import Sign, signs_of
from dataguard.triage.respond.described import facts_of
from dataguard.triage.respond.exports import exports_of
from dataguard.triage.respond.planner import plan_response
from dataguard.triage.respond.quarantining import Suspect
from dataguard.triage.respond.retention import RetentionAdvice, advise_retention, detection_delay

__all__ = [
    "Applied",
    "Change",
    "Command",
    "Exports",
    "QuarantineAdvice",
    "Response",
    "ResumeAdvice",
    "RetentionAdvice",
    "Sign",
    "SkipAdvice",
    "Suspect",
    "advise_retention",
    "apply_response",
    "detection_delay",
    "exports_of",
    "facts_of",
    "plan_response",
    "signs_of",
]
