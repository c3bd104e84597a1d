"""What a notification channel is, and how an attempt to deliver ended."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rekindle_service.notifications.payload import Payload


class DeliveryResult(Enum):
    DELIVERED = "delivered"
    RETRY = "retry"  # it may succeed later
    REJECTED = "rejected"  # it would be rejected again


@dataclass(frozen=True, slots=True)
class Delivery:
    """``reason`` is for the server's log: it holds no secret."""

    result: DeliveryResult
    reason: str = ""


class Channel(Protocol):
    """A webhook or a command."""

    def deliver(self, payload: Payload) -> Delivery: ...
    def close(self) -> None: ...
