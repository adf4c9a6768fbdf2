"""What an allow-list may say, and that a setting which says something else is refused when it is loaded."""

import pytest

from bucketd.store.allow_list import LOOPBACK, AllowList
from bucketd.store.config import Settings
from bucketd.store.errors import ConfigError


def test_the_parts_of_a_list() -> None:
    found = AllowList.parse(" 10.0.0.0/8, fd00::/8 ,10.1.2.3,[::1],DB.corp., *.Corp.example,x_1.y,,")
    assert [str(network) for network in found.networks] == ["10.0.0.0/8", "fd00::/8", "10.1.2.3/32", "::1/128"]
    assert found.hosts == {"db.corp", "x_1.y"}
    assert found.domains == (".corp.example",)


@pytest.mark.parametrize("text", ["", " ", ","])
def test_an_empty_list_allows_nothing(text: str) -> None:
    assert AllowList.parse(text) == AllowList()
    assert not AllowList().has_host("")


@pytest.mark.parametrize(
    "part",
    [
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0",
        "127.1",
        "0x7f.1",
        "0177.0.0.1",
        "2130706433",
        "10.0.0.0/8 10.1.0.0/16",
        "db.corp:8080",
        "127.0.0.1:80",
        "http://db.corp",
        "db.corp/x",
        "*",
        "*.",
        "a.*.corp",
        "*corp",
        ".corp",
        "-a.corp",
        "bücher.example",
        "a..b",
        "a" * 64,
        "fe80::1/10",
        "a.b;c",
    ],
)
def test_a_part_that_is_none_is_named(part: str) -> None:
    with pytest.raises(ConfigError, match=r"^setting egress_allow: expected networks") as caught:
        Settings.load({"BUCKETD_EGRESS_ALLOW": f"10.0.0.0/8,{part}"})
    assert f"got {part!r}" in str(caught.value)
    assert str(caught.value).endswith("; change BUCKETD_EGRESS_ALLOW")


def test_the_setting_is_empty_unless_it_is_set() -> None:
    assert Settings.load({}).egress_allow == ""
    assert Settings.load({"BUCKETD_EGRESS_ALLOW": LOOPBACK}).egress_allow == LOOPBACK
