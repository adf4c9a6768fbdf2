"""Which URLs and headers a target may have: what is certain to fail is refused when it is put. No database."""

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.client import endpoint
from bucketd.errors import InvalidInput


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "http://localhost:8080/hook?x=1",
        "http://10.0.0.5/",  # an allow-list of the runners may name it
        "http://127.0.0.1:1/",
        "http://[::1]:8080/",
        "http://[2001:db8::1]/",
        "https://bücher.example/",
        "https://xn--bcher-kva.example/",
        "https://EXAMPLE.com.:443/a%20b",
        "http://my_service.internal/",
        "http://1.example/",
        "http://a.1b/",
        "http://कॉम.example/",
    ],
    ids=ascii,
)
def test_urls_that_are_fine(url: str) -> None:
    assert endpoint.url(url) == url
    assert httpx.URL(url).host


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (None, "an http or https URL"),
        ("", "an http or https URL"),
        ("https://" + "a" * 2_048, "at most 2,048"),
        ("http://h/a b", "without blanks"),
        ("http://h/\r\nx", "without blanks"),
        ("http://h/\x85", "without blanks"),
        ("http://h/\u3000", "without blanks"),
        ("http://h/\ud800", "without blanks"),
        ("ftp://h/", "http://"),
        ("file:///etc/passwd", "http://"),
        ("//h/", "http://"),
        ("h/x", "http://"),
        ("http://", "name a host"),
        ("http:///x", "name a host"),
        ("http://:80/", "name a host"),
        ("http://h:0/", "port above 0"),
        ("http://h:65536/", "malformed"),
        ("http://h:x/", "malformed"),
        ("http://h:٨٠/", "malformed"),
        ("http://[::1/", "malformed"),
        ("http://user:hush@h/", "without user"),
        ("http://hush@h/", "without user"),
        ("http://@h/", "without user"),
        ("http://8.8.8.8\\@127.0.0.1/", "without user"),
        ("http://h\\x/", "letters, digits"),
        ("http://2130706433/", "IPv4"),
        ("http://0x7f.1/", "IPv4"),
        ("http://127.1/", "IPv4"),
        ("http://0177.0.0.1/", "IPv4"),
        ("http://127.0.0.1./", "IPv4"),
        ("http://256.1.1.1/", "IPv4"),
        ("http://a.0x1/", "IPv4"),
        ("http://%31%32%37.0.0.1/", "IPv4"),
        ("http://%6c.example/", "letters, digits"),
        ("http://127.0.0.1%00.example/", "letters, digits"),
        ("http://a*b/", "letters, digits"),
        ("http://[fe80::1%25eth0]/", "IPv6"),
        ("http://[fe80::1%eth0]/", "IPv6"),
        ("http://[::1.2.3]/", "malformed|IPv6"),
        ("http://①②⑦.⓪.⓪.①/", r"plain letters and digits \(127\.0\.0\.1\)"),
        ("http://\uff11\uff12\uff17.0.0.1/", "IPv4|plain letters"),
        ("http://ⓛocalhost/", r"plain letters and digits \(localhost\)"),
    ],
    ids=ascii,
)
def test_urls_that_are_refused(url: object, problem: str) -> None:
    with pytest.raises(InvalidInput, match="expected .*" + problem) as caught:
        endpoint.url(url, "dead_hook_url")
    assert caught.value.field == "dead_hook_url"
    assert "hush" not in str(caught.value)


def test_headers_are_kept_as_given() -> None:
    given = {"Authorization": "Bearer x.y", "X-A": "", "x_b": "tab\there ~", "processing": "1", "web-hook-id": "1"}
    assert json.loads(endpoint.headers(given)) == given


CONNECTION = ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"]
PROXIES = ["proxy-authorization", "proxy-authenticate", "proxy-connection", "proxy-anything"]
OURS = [
    "content-type",
    "idempotency-key",
    "webhook-id",
    "webhook-signature",
    "webhook-x",
    "bucketd-attempt",
    "bucketd-x",
]


@pytest.mark.parametrize("spell", [str.lower, str.title, str.upper])
@pytest.mark.parametrize("name", [*CONNECTION, *PROXIES, *OURS])
def test_headers_of_the_connection_and_ours_are_refused(name: str, spell: "type[str]") -> None:
    with pytest.raises(InvalidInput, match=f"expected no header '{spell(name)}'") as caught:
        endpoint.headers({spell(name): "x"})
    assert caught.value.field == "headers"


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a:", "a\r\n", "a\n", "a\0", "é", "a/b", '"a"', "a" * 256, 1, None, "(a)"]
)
def test_names_that_are_no_tokens_are_refused(name: object) -> None:
    with pytest.raises(InvalidInput, match="expected a header name"):
        endpoint.headers({name: "x"})


@pytest.mark.parametrize(
    "text",
    [
        "a\r\nb: c",
        "a\n",
        "\ra",
        "a\0",
        "\x01",
        "\x1b[2J",
        "\x7f",
        "\x85",
        "\xa0",
        "é",
        "☃",
        "\ud800",
        "x" * 8_193,
        1,
        None,
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_values_that_are_no_plain_line_are_refused_unseen(text: object) -> None:
    with pytest.raises(InvalidInput, match="expected header 'x-key' to be one line") as caught:
        endpoint.headers({"x-key": text})
    assert not isinstance(text, str) or ascii(text)[1:-1] not in str(caught.value)


def test_a_name_in_two_cases_is_refused() -> None:
    with pytest.raises(InvalidInput, match="once"):
        endpoint.headers({"X-A": "1", "x-a": "2"})


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=3))
def test_what_is_accepted_can_be_sent(headers: dict[str, str]) -> None:
    try:
        found = json.loads(endpoint.headers(headers))
    except InvalidInput:
        return
    request = httpx.Request("POST", "http://h/", headers=found)
    assert all(request.headers[name] == text for name, text in headers.items())


@given(st.text(alphabet="a1.:[]%@/\\?#éß①-_x\u3002 ", max_size=12))
def test_an_accepted_url_is_understood_by_who_sends_it(rest: str) -> None:
    """The host that was checked is the host that is called."""
    try:
        url = endpoint.url(f"http://{rest}")
    except InvalidInput:
        return
    sent = understood(url)
    if sent is None:  # which names are good beyond ASCII is in tables of IDNA that the client does not have
        assert not url.isascii()
        return
    assert sent.host
    assert not sent.userinfo


def understood(url: str) -> httpx.URL | None:
    try:
        return httpx.URL(url)
    except httpx.InvalidURL:
        return None
