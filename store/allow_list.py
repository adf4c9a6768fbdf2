"""Which hosts and networks requests may reach although they are none of the public internet: `egress_allow`, parsed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Self

LOOPBACK = "127.0.0.0/8,::1"  # this machine: what demos, benches and a developer's `bucketd up` call

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
# A name whose last label is a number is read as an address by some (127.1, 0x7f.1): as a name it would mean two things.
_NUMBER_LAST = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")


@dataclass(frozen=True, slots=True)
class AllowList:
    """Networks, host names, and domains whose subdomains are meant. Empty: nothing is allowed."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    hosts: frozenset[str] = frozenset()
    domains: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of a comma-separated list: `10.0.0.0/8`, `fd00::/8`, `10.0.0.5`, `db.corp`, `*.corp.example`.

        Raises ValueError, which names the part that is none of these.
        """
        networks, hosts, domains = [], set(), []
        for part in filter(None, (part.strip().lower() for part in text.split(","))):
            if _is_name(part):
                name = part.removesuffix(".")
                domains.append(name[1:]) if name.startswith("*.") else hosts.add(name)
            else:
                networks.append(_network(part))
        return cls(tuple(networks), frozenset(hosts), tuple(domains))

    def has_address(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether a network of the list contains it."""
        return any(address in network for network in self.networks)

    def has_host(self, host: str) -> bool:
        """Whether the list names this host of a URL; `*.corp.example` means all below corp.example, and not itself."""
        name = host.lower().removesuffix(".")
        return name in self.hosts or name.endswith(self.domains)


def _is_name(part: str) -> bool:
    name = part.removesuffix(".")
    return len(name) <= 253 and bool(_HOST.fullmatch(name)) and not _NUMBER_LAST.fullmatch(name)


def _network(part: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(part.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise ValueError(
            "expected networks (10.0.0.0/8), addresses, and host names (db.corp, *.corp.example; non-ASCII ones as xn--..),"
            f" separated by commas, got {part!r}: {error}"
        ) from None
