"""What a target may do in place of its duty, and what has to come of it: the table of test_hostile_targets.py."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.hostile import Script, Then, well

TIMEOUT_S = 0.5  # of targets that do not answer
ENOUGH_S = 20.0  # of those that do, however busy the machine is
MAX_ATTEMPTS = 3
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
JSON = {"Content-Type": "application/json"}
HEAD_JSON = HEAD.replace(b"200 OK", b"207 See", 1).replace(b"\r\n", b"\r\nContent-Type: application/json\r\n", 1)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BARE = b"HTTP/1.1 200 OK\r\n\r\n"  # its body ends with the connection
MB_10 = b"x" * 10_000_000
LATE = rf"no answer within {TIMEOUT_S:g} s"
CUT = r"ServerDisconnected|Connection reset|ConnectionReset|ClientOSError"
BROKEN = r"ClientPayloadError|Connection reset|ClientOSError|ServerDisconnected"
NO_HTTP = r"Bad|Expected|Invalid|400"
OK = well(200)


@dataclass(frozen=True)
class Case:
    """What a target does in each attempt, and what comes of it. `says`: a pattern of the last failure."""

    scripts: tuple[Script, ...]
    status: str = "dead"
    attempts: int = MAX_ATTEMPTS
    http_status: int | None = None
    says: str = ""

    @property
    def timeout_s(self) -> float:
        return TIMEOUT_S if self.says == LATE else ENOUGH_S


def good(*scripts: Script, http_status: int = 200) -> Case:
    """The last of these scripts is a success."""
    return Case(scripts, "succeeded", len(scripts), http_status)


def bad(script: Script, says: str) -> Case:
    """No attempt brings an answer."""
    return Case((script,), says=says)


def retried(status: int, body: bytes = b"", **headers: str) -> Case:
    """Every attempt is answered like this, and tried again."""
    return Case(
        (well(status, body, **headers), well(status, body, **headers)), http_status=status, says=f"^HTTP {status}"
    )


def final(status: int, **headers: str) -> Case:
    """The first answer is the last."""
    return Case((well(status, b"no", **headers),), attempts=1, http_status=status, says=f"^HTTP {status} no$")


CASES: Mapping[str, Case] = {
    "hang-before-headers": bad(Script(then=Then.HANG), LATE),
    "hang-in-headers": bad(Script(b"HTTP/1.1 200 OK\r\nX-", Then.HANG), LATE),
    "hang-in-body": bad(Script(HEAD + b"some", Then.HANG), LATE),
    "trickled-headers": bad(Script(b"HTTP/1.1 200 OK\r\n", endless=b"X-A: b\r\n", every_s=0.05), LATE),
    "trickled-body": bad(Script(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", endless=b"x", every_s=0.05), LATE),
    "continue-for-ever": bad(Script(endless=b"HTTP/1.1 100 Continue\r\n\r\n", every_s=0.01), LATE),
    "endless-body": good(Script(BARE, endless=b"x" * 65_536)),
    "endless-chunks": good(Script(CHUNKED, endless=b"1000\r\n" + b"x" * 4096 + b"\r\n")),
    "endless-failure": Case(
        (Script(b"HTTP/1.1 500 Oops\r\n\r\n", endless=b"x" * 65_536),), http_status=500, says=r"^HTTP 500 x{1000}"
    ),
    "endless-header": bad(Script(b"HTTP/1.1 200 OK\r\nX-A: ", endless=b"a" * 65_536), NO_HTTP),
    "endless-headers": bad(Script(b"HTTP/1.1 200 OK\r\n", endless=b"X-A: b\r\n" * 1_000), NO_HTTP),
    "reset-before-answer": bad(Script(then=Then.RESET), CUT),
    "reset-in-headers": bad(Script(b"HTTP/1.1 200 OK\r\nX-", Then.RESET), CUT),
    "reset-in-body": bad(Script(HEAD + b"some", Then.RESET), BROKEN),
    "closed-before-answer": bad(Script(), CUT),
    "closed-in-body": bad(Script(HEAD + b"some"), BROKEN),
    "half-closed-before-answer": bad(Script(then=Then.HALF_CLOSE), CUT),
    "half-closed-in-body": bad(Script(HEAD + b"some", Then.HALF_CLOSE), BROKEN),
    "half-closed-after-answer": good(Script(BARE + b"all of it", Then.HALF_CLOSE)),
    "no-http": bad(Script(b"220 mail.example.com ESMTP\r\n", Then.HANG), NO_HTTP),
    "noise": bad(Script(bytes(range(256)) * 40), NO_HTTP),
    "bad-chunks": bad(Script(CHUNKED + b"what?\r\n", Then.HANG), r"ClientPayloadError|chunk|" + NO_HTTP),
    "two-lengths": bad(Script(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc"), NO_HTTP),
    "500": retried(500, b"a \x00 b \xff \xf0\x9f"),
    "500-of-10-mb": retried(500, MB_10),
    "503": retried(503),
    "408": retried(408),
    "425": retried(425),
    "429": retried(429),
    "429-seconds": retried(429, Retry_After="1"),  # capped by the target's cap, or this would take seconds
    "429-absurd": retried(429, Retry_After="9" * 400),
    "429-far-date": retried(429, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"),
    "429-negative": retried(429, Retry_After="-1"),
    "429-garbage": retried(429, Retry_After="as soon as you like"),
    "204": good(well(204), http_status=204),
    "202": good(well(202), http_status=202),
    "200-of-10-mb": good(well(200, MB_10)),
    "200-says-gzip": good(well(200, b"this is no gzip", Content_Encoding="gzip")),
    "301": final(301, Location="/301"),
    "302": final(302, Location="/302"),
    "307": final(307, Location="/307"),
    "308": final(308, Location="/308"),
    "400": final(400),
    "404": final(404),
    "410": final(410),
    "499": final(499),
    "heals": good(Script(then=Then.RESET), well(503), OK),
    "then-rejected": Case((Script(), well(404, b"no")), attempts=2, http_status=404, says="^HTTP 404 no$"),
}
