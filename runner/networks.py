"""What is no place of the public internet: a table, and the question that is asked of it. Pure.

`ipaddress.is_global` is not asked: its answers differ between releases of Python, and it calls multicast global. What is
public here stays so in all of them. Left out on purpose: anycast that anybody may use (AS112, RFC 7534 and 7535; AMT, RFC 7450).
A network's own NAT64 prefix (RFC 6052) looks like any address; what it leads to is for the firewall beside it.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

# The first that contains an address names the reason: the narrow before the wide.
IPV4 = [
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/32", "unspecified (RFC 1122)"),
        ("0.0.0.0/8", "this network (RFC 1122)"),
        ("10.0.0.0/8", "private (RFC 1918)"),
        ("100.100.100.200/32", "a cloud's metadata service, in shared space (RFC 6598)"),
        ("100.64.0.0/10", "shared by carriers (RFC 6598)"),
        ("127.0.0.0/8", "loopback (RFC 1122)"),
        ("168.63.129.16/32", "a cloud's metadata service (Azure's platform, a public address)"),
        ("169.254.169.254/32", "a cloud's metadata service, link-local (RFC 3927)"),
        ("169.254.0.0/16", "link-local (RFC 3927)"),
        ("172.16.0.0/12", "private (RFC 1918)"),
        ("192.0.0.0/24", "for protocols (RFC 6890)"),
        ("192.0.2.0/24", "documentation (RFC 5737)"),
        ("192.88.99.0/24", "a 6to4 relay (RFC 7526)"),
        ("192.168.0.0/16", "private (RFC 1918)"),
        ("198.18.0.0/15", "for benchmarks (RFC 2544)"),
        ("198.51.100.0/24", "documentation (RFC 5737)"),
        ("203.0.113.0/24", "documentation (RFC 5737)"),
        ("224.0.0.0/4", "multicast (RFC 5771)"),
        ("255.255.255.255/32", "broadcast (RFC 919)"),
        ("240.0.0.0/4", "reserved (RFC 1112)"),
    )
]
IPV6 = [
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified (RFC 4291)"),
        ("::1/128", "loopback (RFC 4291)"),
        ("::ffff:0:0/96", "IPv4-mapped (RFC 4291)"),
        ("::ffff:0:0:0/96", "IPv4-translated (RFC 2765)"),
        ("::/96", "IPv4-compatible (RFC 4291)"),
        ("64:ff9b:1::/48", "NAT64 of a local network (RFC 8215)"),
        ("100::/64", "discarded (RFC 6666)"),
        ("2001::/32", "Teredo (RFC 4380)"),
        ("2001:2::/48", "for benchmarks (RFC 5180)"),
        ("2001:10::/28", "ORCHID (RFC 4843)"),
        ("2001:20::/28", "ORCHID (RFC 7343)"),
        ("2001::/23", "for protocols (RFC 2928)"),
        ("2001:db8::/32", "documentation (RFC 3849)"),
        ("2002::/16", "6to4 (RFC 3056)"),
        ("3fff::/20", "documentation (RFC 9637)"),
        ("5f00::/16", "segment routing (RFC 9602)"),
        ("fd00:ec2::254/128", "a cloud's metadata service, private (RFC 4193)"),
        ("fc00::/7", "private (RFC 4193)"),
        ("fe80::/10", "link-local (RFC 4291)"),
        ("fec0::/10", "site-local (RFC 3879)"),
        ("ff00::/8", "multicast (RFC 4291)"),
    )
]
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # all that IANA hands out; the rest of IPv6 is reserved (RFC 4291)
NAT64 = IPv6Network("64:ff9b::/96")  # the way from an IPv6-only network to all of IPv4 (RFC 6052)


def why_not_public(address: IPv4Address | IPv6Address) -> str | None:
    """What the address is, as `loopback (RFC 1122)`; None: a place of the public internet."""
    if isinstance(address, IPv4Address):
        return _named(address, IPV4)
    if address.scope_id is not None:
        return "of one interface only (RFC 4007)"
    if address in NAT64:
        inner = why_not_public(_embedded(address))
        return f"NAT64 (RFC 6052) of {_embedded(address)}, which is {inner}" if inner else None
    return _named(address, IPV6) or (None if address in _GLOBAL_UNICAST else "reserved (RFC 4291)")


def _named(
    address: IPv4Address | IPv6Address, table: list[tuple[IPv4Network, str]] | list[tuple[IPv6Network, str]]
) -> str | None:
    return next((reason for network, reason in table if address in network), None)


def _embedded(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)
