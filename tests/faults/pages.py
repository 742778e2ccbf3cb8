"""Which page of a store holds which message.

A reader of SQLite's file format, as much of it as it takes to know what a damaged page
can cost: the rows on it, and those whose long values continue on it. Everything else has
to come back out of a salvage.
"""

import pathlib
import sqlite3
import struct


class Map:
    def __init__(self, path: pathlib.Path):
        self.bytes = path.read_bytes()
        self.page_size = struct.unpack(">H", self.bytes[16:18])[0]
        self.pages = len(self.bytes) // self.page_size
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        roots = dict(database.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"))
        database.close()
        # page -> rows of the messages table that have a part of themselves on it
        self.rows: dict[int, set[int]] = {}
        # Pages that only lead to others.
        self.inner: set[int] = set()
        self._walk(roots["messages"])

    def _page(self, number: int) -> bytes:
        return self.bytes[(number - 1) * self.page_size:number * self.page_size]

    def _walk(self, number: int) -> None:
        page = self._page(number)
        start = 100 if number == 1 else 0
        kind, _, cells = struct.unpack(">BHH", page[start:start + 5])
        is_leaf = kind == 13
        first = start + (8 if is_leaf else 12)
        pointers = struct.unpack(f">{cells}H", page[first:first + 2 * cells])
        if is_leaf:
            self.rows[number] = set()
            for pointer in pointers:
                self._read_cell(number, page, pointer)
            return
        self.inner.add(number)
        for pointer in pointers:
            self._walk(struct.unpack(">I", page[pointer:pointer + 4])[0])
        self._walk(struct.unpack(">I", page[start + 8:start + 12])[0])

    def _read_cell(self, number: int, page: bytes, at: int) -> None:
        size, at = varint(page, at)
        row, at = varint(page, at)
        self.rows[number].add(row)
        usable = self.page_size
        local_max = usable - 35
        if size <= local_max:
            return
        local_min = (usable - 12) * 32 // 255 - 23
        local = local_min + (size - local_min) % (usable - 4)
        local = local if local <= local_max else local_min
        following = struct.unpack(">I", page[at + local:at + local + 4])[0]
        while following:
            self.rows.setdefault(following, set()).add(row)
            following = struct.unpack(">I", self._page(following)[:4])[0]

    def rows_on(self, touched: set[int]) -> set[int]:
        """Returns the rows that damage on these pages may cost."""
        return set().union(*(self.rows.get(page, set()) for page in touched))


def varint(page: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = page[at + count]
        if count == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if not byte & 0x80:
            return value, at + count + 1
    raise AssertionError("a varint has nine bytes at most")
