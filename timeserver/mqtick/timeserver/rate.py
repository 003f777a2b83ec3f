"""Limits how often clients are answered, with a bounded number of token buckets."""

from __future__ import annotations

from collections import OrderedDict


class Bucket:
    """Holds up to `burst` tokens and gains `rate` a second; times are ns of any steady clock."""

    __slots__ = ("_tokens", "_updated_ns", "burst", "rate")

    def __init__(self, rate: float, burst: float, now_ns: int) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._updated_ns = now_ns

    def take(self, now_ns: int) -> bool:
        """Take one token if there is one."""
        gained = (now_ns - self._updated_ns) / 1e9 * self.rate
        self._tokens = min(self.burst, self._tokens + gained)
        self._updated_ns = now_ns
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class RateLimit:
    """One bucket for all, and one per client; a new client replaces the one idle longest."""

    def __init__(
        self, *, client_rate: float, client_burst: float, total_rate: float, clients: int = 4096
    ) -> None:
        self._client_rate, self._client_burst = client_rate, client_burst
        self._total = Bucket(total_rate, total_rate, 0)
        self._clients: OrderedDict[str, Bucket] = OrderedDict()
        self._limit = clients

    def allow_client(self, client: str, now_ns: int) -> bool:
        """Take a token of this client; False if it has none left."""
        bucket = self._clients.get(client)
        if bucket is None:
            if len(self._clients) >= self._limit:
                self._clients.popitem(last=False)
            bucket = self._clients[client] = Bucket(self._client_rate, self._client_burst, now_ns)
        else:
            self._clients.move_to_end(client)
        return bucket.take(now_ns)

    def allow_total(self, now_ns: int) -> bool:
        """Take a token of all clients together; False if there is none left."""
        return self._total.take(now_ns)
