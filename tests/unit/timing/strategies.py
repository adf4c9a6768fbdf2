"""Random cron expressions, zones and windows in which something happens to the clock."""

from hypothesis import strategies as st

# Zone and an instant at which its offset changes, epoch seconds.
CHANGES = [
    ("America/New_York", 1_772_953_200),
    ("America/New_York", 1_793_512_800),
    ("Europe/Berlin", 1_774_746_000),
    ("Australia/Lord_Howe", 1_791_041_400),
    ("Australia/Lord_Howe", 1_775_314_800),
    ("Antarctica/Troll", 1_774_746_000),
    ("Antarctica/Casey", 1_601_740_860),
    ("Antarctica/Casey", 1_583_596_800),
    ("America/Havana", 1_762_059_600),
    ("America/St_Johns", 1_289_097_060),
    ("Africa/Cairo", 1_776_981_600),
    ("Asia/Dhaka", 1_245_430_800),
    ("Pacific/Apia", 1_325_239_200),
    ("Pacific/Kwajalein", -7_988_400),
    ("Pacific/Chatham", 1_790_431_200),
    ("UTC", 1_772_953_200),
]
changes = st.sampled_from(CHANGES)
policies = st.tuples(
    st.sampled_from(["auto", "run_after", "skip", "shift"]), st.sampled_from(["auto", "first", "second", "both"])
)


def _items(low: int, high: int, top: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    step = st.one_of(st.just(""), st.integers(1, 9).map("/{}".format))
    return st.one_of(
        st.tuples(number, step).map(lambda parts: f"{parts[0]}{parts[1]}"),
        st.tuples(number, number, step).map(lambda parts: f"{parts[0]}-{parts[1]}{parts[2]}"),
        st.tuples(st.just("*"), step).map("".join),
    )


def _field(items: st.SearchStrategy[str], most: int = 3) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.lists(items, min_size=1, max_size=most).map(",".join))


_dom = st.one_of(
    _items(1, 31, 31), st.sampled_from(["L", "LW", "L-1", "L-3", "15W", "1W", "31W", "30W", "28-3", "31", "1-7"])
)
_dow = st.one_of(
    _items(0, 7, 6), st.sampled_from(["5#3", "SUN#5", "7#1", "FRIL", "0L", "FRI-MON", "7-2", "SAT-SUN", "MON,3"])
)
expressions = st.tuples(
    _field(_items(0, 59, 59)),
    _field(_items(0, 23, 23)),
    st.one_of(st.just("*"), st.just("?"), _field(_dom)),
    st.one_of(st.just("*"), _field(_items(1, 12, 12), 2)),
    st.one_of(st.just("*"), st.just("?"), _field(_dow)),
).map(" ".join)
