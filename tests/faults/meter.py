"""Measures a gateway from outside, a line of JSON each time: what it takes, and how long it needs.

A process of its own, so that what makes the load does not get in between.

usage: meter.py <pid> <port> <path of a page> <write-ahead log>, and the token as a line of input.
"""

import json
import pathlib
import sys
import time

from threats import ask, memory_kib

EVERY_S = 0.1


def main() -> None:
    pid, port, path, wal = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
    token = sys.stdin.readline().strip()
    while True:
        sample = {"healthz": time_of(port, "/healthz", token), "history": time_of(port, path, token)}
        sample["memory"] = memory_kib(pid, "VmRSS")
        sample["descriptors"] = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
        sample["wal"] = wal.stat().st_size / 1024 if wal.exists() else 0
        print(json.dumps(sample), flush=True)
        time.sleep(EVERY_S)


def time_of(port: int, path: str, token: str) -> float:
    begun = time.monotonic()
    status, answer = ask(port, "GET", path, token)
    if status != 200:
        sys.exit(f"{path} got {status} {answer[:300]}")
    return (time.monotonic() - begun) * 1000


if __name__ == "__main__":
    main()
