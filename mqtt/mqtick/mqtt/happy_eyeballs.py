"""Connects to a host with several addresses, of which some may be dead (RFC 8305)."""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import time

_BETWEEN_ATTEMPTS_S = 0.25  # RFC 8305, section 5


def connect_to(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a blocking socket to the first address that answers; OSError if none does in time.

    Address families take turns. An attempt begins when the last one has failed, or after a quarter
    of a second, and goes on beside the later ones. `timeout_s` holds from the last attempt on.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ours = [one for one in found if one[0] == found[0][0]]
    others = [one for one in found if one[0] != found[0][0]]
    left = [one for both in itertools.zip_longest(ours, others) for one in both if one is not None]
    error: OSError = TimeoutError("timed out")
    tried: dict[int, socket.socket] = {}
    poll = select.poll()
    try:
        while left or tried:
            if left:
                family, kind, protocol, _, address = left.pop(0)
                end_s = time.monotonic() + (_BETWEEN_ATTEMPTS_S if left else timeout_s)
                try:
                    sock = socket.socket(family, kind, protocol)
                except OSError as caught:  # this host has no IPv6, for instance
                    error = caught
                    continue
                tried[sock.fileno()] = sock
                sock.setblocking(False)
                code = sock.connect_ex(address)
                if code not in (0, errno.EINPROGRESS):  # no route, for instance
                    error = OSError(code, os.strerror(code))
                    tried.pop(sock.fileno()).close()
                    continue
                poll.register(sock, select.POLLOUT)
            ready = poll.poll(1000 * max(0.0, end_s - time.monotonic()))
            for descriptor, _ in ready:
                code = tried[descriptor].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                sock = tried.pop(descriptor)
                if not code:
                    sock.settimeout(timeout_s)
                    return sock
                error = OSError(code, os.strerror(code))
                poll.unregister(sock)
                sock.close()
            if not ready and not left:
                break
        raise error
    finally:
        for sock in tried.values():
            sock.close()
