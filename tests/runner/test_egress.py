"""Where a request may not go, each form tried through a caller with aiohttp's real connector; and what an allow-list opens."""

import asyncio
import contextvars
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.runner import networks
from bucketd.runner.egress import EgressDenied, Guard
from bucketd.store.allow_list import AllowList
from tests.support.calls import call_target, calling

NAME = "http://evil.example/"

# What a target's URL says, what its name resolves to (none: it is an address), and what the refusal calls it.
HOSTILE: list[tuple[str, str | None, str]] = [
    ("http://127.0.0.1/", None, "loopback"),
    ("http://127.255.255.254:8080/x", None, "loopback"),
    ("https://127.0.0.1/", None, "loopback"),
    ("http://0.0.0.0/", None, "unspecified"),
    ("http://0.1.2.3/", None, "this network"),
    ("http://10.0.0.1/", None, "private"),
    ("http://172.16.0.1/", None, "private"),
    ("http://172.31.255.255/", None, "private"),
    ("http://192.168.1.1/", None, "private"),
    ("http://100.64.0.1/", None, "shared by carriers"),
    ("http://100.127.255.255/", None, "shared by carriers"),
    ("http://100.100.100.200/latest/meta-data/", None, "metadata"),
    ("http://169.254.169.254/latest/meta-data/", None, "metadata"),
    ("http://169.254.170.2/v2/credentials", None, "link-local"),
    ("http://168.63.129.16/machine", None, "metadata"),
    ("http://192.0.0.192/opc/v2/", None, "for protocols"),
    ("http://192.0.2.1/", None, "documentation"),
    ("http://198.51.100.1/", None, "documentation"),
    ("http://203.0.113.255/", None, "documentation"),
    ("http://198.18.0.1/", None, "for benchmarks"),
    ("http://198.19.255.255/", None, "for benchmarks"),
    ("http://192.88.99.1/", None, "6to4 relay"),
    ("http://224.0.0.1/", None, "multicast"),
    ("http://239.255.255.255/", None, "multicast"),
    ("http://240.0.0.1/", None, "reserved"),
    ("http://255.255.255.255/", None, "broadcast"),
    # The same places in the spellings that C libraries and browsers understand.
    ("http://2130706433/", None, "loopback"),
    ("http://017700000001/", None, "loopback"),
    ("http://0x7f000001/", None, "loopback"),
    ("http://0x7f.1/", None, "loopback"),
    ("http://0X7F.0x0.0x0.0x1/", None, "loopback"),
    ("http://127.1/", None, "loopback"),
    ("http://127.0.1/", None, "loopback"),
    ("http://0/", None, "unspecified"),
    ("http://127.0.0.1./", None, "loopback"),
    ("http://127。0。0。1/", None, "loopback"),
    ("http://2852039166/", None, "metadata"),
    ("http://0xa9fea9fe/", None, "metadata"),
    ("http://10.1/", None, "private"),
    ("http://169.254.43518/", None, "metadata"),
    # IPv6, and IPv4 in its clothes.
    ("http://[::]/", None, "unspecified"),
    ("http://[::1]/", None, "loopback"),
    ("http://[0:0:0:0:0:0:0:1]/", None, "loopback"),
    ("http://[::ffff:127.0.0.1]/", None, "IPv4-mapped"),
    ("http://[::ffff:7f00:1]/", None, "IPv4-mapped"),
    ("http://[::ffff:8.8.8.8]/", None, "IPv4-mapped"),
    ("http://[::127.0.0.1]/", None, "IPv4-compatible"),
    ("http://[::ffff:0:127.0.0.1]/", None, "IPv4-translated"),
    ("http://[64:ff9b::127.0.0.1]/", None, "loopback"),
    ("http://[64:ff9b::a9fe:a9fe]/", None, "metadata"),
    ("http://[64:ff9b::10.0.0.1]/", None, "private"),
    ("http://[64:ff9b:1::8.8.8.8]/", None, "NAT64 of a local network"),
    ("http://[2002:7f00:1::]/", None, "6to4"),
    ("http://[2002:808:808::1]/", None, "6to4"),
    ("http://[2001:0:7f00:1::]/", None, "Teredo"),
    ("http://[2001:2::1]/", None, "for benchmarks"),
    ("http://[2001:10::1]/", None, "ORCHID"),
    ("http://[2001:20::1]/", None, "ORCHID"),
    ("http://[2001:1::1]/", None, "for protocols"),
    ("http://[2001:db8::1]/", None, "documentation"),
    ("http://[3fff::1]/", None, "documentation"),
    ("http://[100::1]/", None, "discarded"),
    ("http://[5f00::1]/", None, "segment routing"),
    ("http://[fc00::1]/", None, "private"),
    ("http://[fd00:ec2::254]/", None, "metadata"),
    ("http://[fdff:ffff::1]/", None, "private"),
    ("http://[fe80::1]/", None, "link-local"),
    ("http://[fe80::1%25eth0]/", None, "of one interface"),
    ("http://[fe80::1%eth0]/", None, "of one interface"),
    ("http://[2606:4700::1%25lo]/", None, "of one interface"),
    ("http://[fec0::1]/", None, "site-local"),
    ("http://[ff02::1]/", None, "multicast"),
    ("http://[4000::1]/", None, "reserved"),
    ("http://[e000::1]/", None, "reserved"),
    # Names, whatever they look like.
    (NAME, "127.0.0.1", "loopback"),
    (NAME, "::1", "loopback"),
    (NAME, "10.1.2.3", "private"),
    (NAME, "fe80::1%2", "of one interface"),
    (NAME, "::ffff:10.0.0.1", "IPv4-mapped"),
    (NAME, "2130706433", "no plain address"),
    (NAME, "0177.0.0.1", "no plain address"),
    (NAME, "127.1", "no plain address"),
    (NAME, "localhost", "no plain address"),
    (NAME, "8.8.8.8\x00.evil", "no plain address"),
    ("http://localhost/", "127.0.0.1", "loopback"),
    ("http://LOCALHOST./", "::1", "loopback"),
    ("http://metadata.google.internal/", "169.254.169.254", "metadata"),
    ("http://metadata/", "fd00:ec2::254", "metadata"),
    ("http://kubernetes.default.svc/", "10.96.0.1", "private"),
    ("http://127.0.0.1.nip.io/", "127.0.0.1", "loopback"),
    ("http://8.8.8.8.evil.example/", "169.254.169.254", "metadata"),
    ("http://%31%32%37.0.0.1/", "127.0.0.1", "loopback"),
    ("http://127.0.0.1%00.example/", "127.0.0.1", "loopback"),
    ("http://xn--80ak6aa92e.example/", "192.168.0.1", "private"),
    ("http://bücher.example/", "172.20.0.1", "private"),
    ("http://8.8.8.8@127.0.0.1/", None, "loopback"),
    ("http://127.0.0.1#@8.8.8.8/", None, "loopback"),
    ("http://127.0.0.1?@8.8.8.8/", None, "loopback"),
    ("http://8.8.8.8\\@127.0.0.1/", None, "loopback"),
]


@pytest.mark.parametrize(("url", "address", "reason"), HOSTILE, ids=lambda value: ascii(value))
async def test_hostile_forms_are_denied(url: str, address: str | None, reason: str) -> None:
    """An address is refused for good; a name may resolve to something else next time."""
    answers = [] if address is None else [[address]]
    async with calling("", *answers) as caller:
        answer = await caller.post(call_target(url), b"", {}, 5.0)
    assert answer.status is None
    assert answer.error.startswith("egress denied: ")
    assert reason in answer.error
    assert (f"resolves to {address}, which is " in answer.error) == (address is not None)
    assert answer.error.endswith("; allow it with BUCKETD_EGRESS_ALLOW")
    assert answer.buildable == (address is not None)


@pytest.mark.parametrize(
    "url",
    [
        "http://①②⑦.⓪.⓪.①/",
        "http://\uff11\uff12\uff17.0.0.1/",  # full-width digits
        "http://ⓛocalhost/",
        "http://0177.0.0.1/",
        "http://256.1.1.1/",
        "http://4294967296/",
        "http://1.2.3.4.5/",
        "http://[::1/",
        "http://[v1.x]/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "unix:///run/docker.sock",
        "http://",
        "//127.0.0.1/",
    ],
    ids=ascii,
)
async def test_what_is_no_url_of_ours_is_refused_before_the_resolver(url: str) -> None:
    async with calling("", ["127.0.0.1"]) as caller:
        answer = await caller.post(call_target(url), b"", {}, 5.0)
    assert (answer.status, answer.buildable) == (None, False)
    assert answer.error.startswith("request cannot be ")


IPV4 = st.integers(0, 2**32 - 1) | st.sampled_from(
    [edge + step for network, _ in networks.IPV4 for edge in (int(network[0]), int(network[-1])) for step in (-1, 0, 1)]
).filter(lambda number: 0 <= number < 2**32)
IPV6 = st.integers(0, 2**128 - 1) | st.sampled_from(
    [edge + step for network, _ in networks.IPV6 for edge in (int(network[0]), int(network[-1])) for step in (-1, 0, 1)]
).filter(lambda number: 0 <= number < 2**128)


@settings(max_examples=500)
@given(IPV4.map(IPv4Address) | IPV6.map(IPv6Address))
def test_what_python_calls_private_is_denied(address: IPv4Address | IPv6Address) -> None:
    """Our table is another one than `ipaddress` has, and at least as strict as this release of it."""
    if networks.why_not_public(address) is None and address not in networks.NAT64:
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved


def opens(allow: str, url: str, address: str) -> bool:
    """Whether the guard gives this URL a socket for an address, as aiohttp asks for it."""
    guard = Guard(AllowList.parse(allow))
    guard.enter(url)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        guard.open((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 80))).close()
    except EgressDenied:
        return False
    return True


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"),
        *(
            "128.0.0.1",
            "168.63.129.15",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.0.1",
        ),
        *("192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255"),
        *("2606:4700::1111", "2001:4860:4860::8888", "2001:200::1", "2a00::1", "3ffe::1", "2003::1"),
        "64:ff9b::8.8.8.8",  # what a resolver on an IPv6-only network makes of any IPv4 address
    ],
)
def test_the_public_internet_is_open(address: str) -> None:
    assert opens("", NAME, address)


@pytest.mark.parametrize(
    ("allow", "url", "address"),
    [
        ("127.0.0.0/8", NAME, "127.0.0.1"),
        ("127.0.0.1", "http://127.0.0.1/", "127.0.0.1"),
        ("127.0.0.1", "http://2130706433/", "127.0.0.1"),
        (" 192.168.0.0/16 , 10.0.0.0/8,", NAME, "10.255.255.255"),
        ("10.0.0.5/32", NAME, "10.0.0.5"),
        ("::1", "http://[::1]/", "::1"),
        ("[::1]", NAME, "::1"),
        ("fd00::/8", NAME, "fd12::1"),
        ("fe80::/10", "http://[fe80::1%25eth0]/", "fe80::1%eth0"),
        ("::ffff:0:0/96", NAME, "::ffff:10.0.0.1"),
        ("169.254.169.254", NAME, "169.254.169.254"),
        ("0.0.0.0/0,::/0", NAME, "255.255.255.255"),
        ("db.corp", "http://db.corp/", "10.0.0.5"),
        ("DB.Corp.", "https://db.CORP:8443/x", "10.0.0.5"),
        ("db.corp", "http://db.corp./", "fd00::5"),
        ("*.corp.example", "http://a.corp.example/", "10.0.0.5"),
        ("*.corp.example", "http://a.b.corp.example/", "10.0.0.5"),
        ("xn--bcher-kva.example", "http://bücher.example/", "10.0.0.5"),
        ("localhost", "http://localhost/", "127.0.0.1"),
    ],
)
def test_an_allow_list_opens_what_it_names(allow: str, url: str, address: str) -> None:
    assert opens(allow, url, address)
    assert not opens("", url, address)


@pytest.mark.parametrize(
    ("allow", "url", "address"),
    [
        ("127.0.0.1", NAME, "127.0.0.2"),
        ("10.0.0.0/8", NAME, "::ffff:10.0.0.1"),
        ("10.0.0.0/8", NAME, "64:ff9b::10.0.0.1"),
        ("10.0.0.0/8", "http://10.0.0.1/", "192.168.0.1"),
        ("127.0.0.0/8", NAME, "127.1"),
        ("0.0.0.0/0,::/0", NAME, "localhost"),
        ("db.corp", NAME, "10.0.0.5"),
        ("db.corp", "http://x.db.corp/", "10.0.0.5"),
        ("db.corp", "http://db.corp.evil.example/", "10.0.0.5"),
        ("db.corp", "http://xdb.corp/", "10.0.0.5"),
        ("db.corp", "http://evil.example/db.corp", "10.0.0.5"),
        ("db.corp", "http://db.corp@evil.example/", "10.0.0.5"),
        ("*.corp.example", "http://corp.example/", "10.0.0.5"),
        ("*.corp.example", "http://evilcorp.example/", "10.0.0.5"),
        ("db.corp", "http://db.corp/", "127.1"),
    ],
)
def test_an_allow_list_opens_nothing_else(allow: str, url: str, address: str) -> None:
    assert not opens(allow, url, address)


def test_without_a_request_only_networks_count() -> None:
    """Whoever uses the connector and says nothing about the host gets no host's permission."""
    guard = Guard(AllowList.parse("db.corp,127.0.0.1"))
    guard.enter("http://db.corp/")

    def there(address: str) -> Callable[[], object]:
        return lambda: guard.open((socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))).close()

    there("10.0.0.5")()
    empty = contextvars.Context()
    empty.run(there("127.0.0.1"))
    with pytest.raises(EgressDenied, match=r"10\.0\.0\.5 is private"):
        empty.run(there("10.0.0.5"))


async def test_requests_at_once_do_not_lend_each_other_permission() -> None:
    guard = Guard(AllowList.parse("db.corp"))
    entered = asyncio.Barrier(2)

    async def ask(url: str) -> bool:
        passage = guard.enter(url)
        await entered.wait()
        try:
            guard.open((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.5", 80))).close()
        except EgressDenied:
            return False
        assert passage.passed
        return True

    assert tuple(await asyncio.gather(ask("http://db.corp/"), ask(NAME))) == (True, False)
