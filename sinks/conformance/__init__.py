"""The conformance kit: one subclass of SinkConformance in an author's tests checks a sink against the contract.

    from sinks.conformance import Given, SinkConformance

    class TestPager(SinkConformance):
        def make(self, tmp_path):
            return Given(Pager, {"path": str(tmp_path / "pages")}, seen=lambda: read_ids(tmp_path / "pages"))

It is for pytest and imports nothing of it. A test that needs a hook of `Given` which is missing is skipped and says
which. A failure says what the sink did, and what it has to do instead.
"""

from sinks.conformance.content import ContentTests
from sinks.conformance.declaration import DeclarationTests
from sinks.conformance.given import Given
from sinks.conformance.lands import LandTests
from sinks.conformance.life import LifeTests
from sinks.conformance.material import ODD_TEXTS, delivery
from sinks.conformance.outcomes import OutcomeTests
from sinks.conformance.secrecy import SecrecyTests

__all__ = ["ODD_TEXTS", "Given", "SinkConformance", "delivery"]


class SinkConformance(DeclarationTests, OutcomeTests, ContentTests, SecrecyTests, LifeTests, LandTests):
    """Every test of the kit. Override `make`, and where you like further hooks of `Given`.

    What `make` needs beyond `tmp_path` an autouse fixture of the subclass can put onto `self` before it.
    """
