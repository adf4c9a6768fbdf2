"""The committed table is what the engine, the models and the installed croniter say today."""

from pathlib import Path

from bucketd.timing import conformance

PAGE = Path(conformance.__file__).with_suffix(".md")


def test_page_is_up_to_date() -> None:
    assert conformance.table() == PAGE.read_text(encoding="utf-8"), (
        "run python -m bucketd.timing.conformance > bucketd/timing/conformance.md, and look at what changed"
    )


def test_every_case_has_a_cell_for_everyone() -> None:
    rows = [line for line in conformance.table().splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(conformance.CASES) >= 14
    assert all(row.count(" | ") == 8 for row in rows)
