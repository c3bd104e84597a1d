"""How a try to tell somebody something ended."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    DELIVERED = "delivered"
    AGAIN = "again"  # it may well succeed later
    REFUSED = "refused"  # it would be refused again


@dataclass(frozen=True, slots=True)
class Delivery:
    """``reason`` is for the server's log: it holds no secret."""

    verdict: Verdict
    reason: str = ""
