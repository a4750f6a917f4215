"""The operator's module, for the command line and for hosts: who may do what, which packs, sinks and routes.

    with Operator.open(settings) as operator:
        operator.add_route("git", "commit.created", "inbox")

Everything is done as one session, in its tenant, and every change is a line of the audit (DESIGN §3).
"""

from sense_worker.operator.acting import Acting
from sense_worker.operator.operator import Operator

__all__ = ["Acting", "Operator"]
