"""Zone data as no release has them: TZif files (RFC 8536, version 2) written by hand."""

import struct
from collections.abc import Sequence


def tzif(first_offset_s: int, changes: Sequence[tuple[int, int]] = ()) -> bytes:
    """A zone with an offset, and (instant, offset from then on) of each change, ascending; the last one holds for good."""
    offsets = [first_offset_s, *(offset for _, offset in changes)]
    empty = _block("l", [], [0])
    return empty + _block("q", [at for at, _ in changes], offsets) + f"\n{_footer(offsets[-1])}\n".encode()


def _block(size: str, instants: list[int], offsets: list[int]) -> bytes:
    head = struct.pack(">4s c 15x 6l", b"TZif", b"2", 0, 0, 0, len(instants), len(offsets), 4)
    times = struct.pack(f">{len(instants)}{size}", *instants) + bytes(range(1, len(instants) + 1))
    return head + times + b"".join(struct.pack(">lBB", offset, 0, 0) for offset in offsets) + b"XXX\0"


def _footer(offset_s: int) -> str:
    """The same offset as a POSIX rule, whose sign is the other way round."""
    minutes = abs(offset_s) // 60
    return f"<XXX>{'-' if offset_s > 0 else ''}{minutes // 60:02d}:{minutes % 60:02d}"
