"""The tables of ops/metrics.md, made from the contract. `python -m tests.metrics.document` writes them anew."""

from pathlib import Path

from bucketd.store.metrics import CLUSTER, EVERY_PROCESS, RUNNER, SCHEDULER, Definition

PATH = Path(__file__).resolve().parents[2] / "ops" / "metrics.md"
BEGIN, END = "<!-- begin: made from store/metrics.py by python -m tests.metrics.document -->", "<!-- end -->"
SECTIONS = {
    "Every process": EVERY_PROCESS,
    "Scheduler": SCHEDULER,
    "The cluster, shown by the scheduler that owns partition 0": CLUSTER,
    "Runner": RUNNER,
}


def tables() -> str:
    """All sections."""
    return "\n".join(_section(title, definitions) for title, definitions in SECTIONS.items())


def replaced(text: str) -> str:
    """The page with its tables as they should be."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"expected {BEGIN} and {END} in {PATH}"
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def _section(title: str, definitions: tuple[Definition, ...]) -> str:
    lines = [f"### {title}", "", "| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{one.name}` | {one.kind} | {_labels(one)} | {one.text}{_bounds(one)} |" for one in definitions]
    return "\n".join([*lines, ""])


def _labels(one: Definition) -> str:
    if one.values:
        return f"`{one.labels[0]}`: {', '.join(one.values)}"
    return ", ".join(f"`{label}`" for label in one.labels)


def _bounds(one: Definition) -> str:
    return f" Buckets (s): {', '.join(f'{bound:g}' for bound in one.bounds)}." if one.bounds else ""


if __name__ == "__main__":
    PATH.write_text(replaced(PATH.read_text(encoding="utf-8")), encoding="utf-8")
