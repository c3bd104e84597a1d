"""A webhook: the payload as the body of a POST, signed, so that the receiver knows who sent it and when."""

import hashlib
import hmac
import time
from urllib.parse import urlsplit

import httpx2

from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.notifications.payload import Delivery, DeliveryResult, Payload

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_TRANSIENT = (408, 425, 429)  # statuses that ask for a retry


class Webhook:
    """Precondition: ``target`` has a url, and therefore a secret. ``deliver`` runs in one thread."""

    def __init__(self, target: NotificationTarget) -> None:
        self._url = target.url or ""
        self._secret = target.secret.get_secret_value().encode() if target.secret is not None else b""
        self._http = httpx2.Client(
            timeout=target.time_limit,
            follow_redirects=False,  # a signed payload goes to the configured URL and to no other
            trust_env=urlsplit(self._url).hostname not in _LOOPBACK,  # no proxy reaches this machine's loopback
        )

    def deliver(self, payload: Payload) -> Delivery:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "rekindle",
            "Rekindle-Event": payload.type.value,
            "Rekindle-Event-Id": payload.id,
            **signature(self._secret, payload.body, int(time.time())),
        }
        try:
            with self._http.stream("POST", self._url, content=payload.body, headers=headers) as response:
                return delivery_of(response.status_code)
        except httpx2.HTTPError as error:
            return Delivery(DeliveryResult.RETRY, type(error).__name__)
        except httpx2.InvalidURL:
            return Delivery(DeliveryResult.REJECTED, "its url is not valid")

    def close(self) -> None:
        self._http.close()


def signature(secret: bytes, body: bytes, at: int) -> dict[str, str]:
    """The headers that prove that whoever holds ``secret`` sent ``body`` at that second since the epoch."""
    proof = hmac.new(secret, b"%d." % at + body, hashlib.sha256).hexdigest()
    return {"Rekindle-Timestamp": str(at), "Rekindle-Signature": f"sha256={proof}"}


def delivery_of(status: int) -> Delivery:
    """Whether an HTTP status asks for a retry."""
    if 200 <= status < 300:
        return Delivery(DeliveryResult.DELIVERED)
    if 300 <= status < 400:
        return Delivery(DeliveryResult.REJECTED, f"HTTP {status}: redirects are not followed, name the final address")
    refused = status < 500 and status not in _TRANSIENT
    return Delivery(DeliveryResult.REJECTED if refused else DeliveryResult.RETRY, f"HTTP {status}")
