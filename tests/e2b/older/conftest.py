"""Older versions of E2B's SDKs, which know names of sandboxes over TLS and nothing else."""

import socket

# Wildcard DNS, as an operator would have it: every name of the domain is this host.
real = socket.getaddrinfo


def getaddrinfo(host, *more, **named):
    name = host.decode() if isinstance(host, bytes) else host
    return real("127.0.0.1" if name and name.endswith(".sbx.test") else host, *more, **named)


socket.getaddrinfo = getaddrinfo
