"""What the attacks write: transcripts and plans that prove themselves.

A plan carries its session, its number and a checksum, so that a reader can tell
a whole plan from a mixture without knowing what was written when.
"""

import hashlib
import json
import pathlib
import random

WORDS = "store plan agent session commit flush kernel résumé 数据 naïve window prefix ledger cut".split()
START_MS = 1_767_225_600_000
ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def compact(value) -> str:
    """Writes JSON the way the program does: no spaces, text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def ulid(rng: random.Random, at_ms: int) -> str:
    number = (at_ms << 80) | rng.getrandbits(80)
    return "".join(ULID[(number >> shift) & 31] for shift in range(125, -1, -5))


def text(rng: random.Random, length: int) -> str:
    words = []
    while length > 0:
        word = rng.choice(WORDS) + (str(rng.randrange(1000)) if rng.random() < 0.3 else "")
        words.append(word)
        length -= len(word) + 1
    return " ".join(words)


class Transcript:
    """A session with its messages, as an import file holds them."""

    def __init__(self, rng: random.Random, session: str, length: int, large_every: int = 12):
        self.session = session
        self.header = compact({
            "type": "session", "id": session, "key": f"agent:main:chat:{session}", "agentId": "main",
            "title": f"faults {session}", "createdAt": "2026-01-01T00:00:00Z",
        })
        self.ids, self.bodies = [], []
        for seq in range(1, length + 1):
            at_ms = START_MS + seq * 1000
            # Now and then one that does not fit a page of the store.
            size = rng.randrange(4_000, 15_000) if rng.randrange(large_every) == 0 else rng.randrange(10, 400)
            self.ids.append(ulid(rng, at_ms))
            self.bodies.append(compact({
                "role": "user" if seq % 2 else "assistant",
                "content": [{"type": "text", "text": text(rng, size)}],
                "timestamp": at_ms,
            }))

    def line(self, seq: int) -> str:
        return f'{{"id":"{self.ids[seq - 1]}","seq":{seq},{self.bodies[seq - 1][1:]}'

    def write(self, directory: pathlib.Path, length: int | None = None) -> pathlib.Path:
        """Writes the first `length` messages as an import file."""
        length = len(self.ids) if length is None else length
        path = directory / f"{self.session}.{length}.jsonl"
        lines = [self.header, *(self.line(seq) for seq in range(1, length + 1))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def plan(session: str, number: int, size: int) -> str:
    """Returns a plan that says which one it is, and ends with the proof."""
    body = f"# plan {session} {number}\n"
    while len(body) < size:
        body += f"- step {len(body)} of plan {number}, é\n"
    return body + f"proof {hashlib.sha1(body.encode()).hexdigest()}\n"


def plan_number(content: str, session: str) -> int:
    """Returns which plan of `session` this is; ValueError when it is not one, whole."""
    body, _, proof = content.rpartition("proof ")
    if not body or proof != hashlib.sha1(body.encode()).hexdigest() + "\n":
        raise ValueError(f"not a whole plan: {len(content)} characters, {content[:60]!r}…{content[-60:]!r}")
    first = body.split("\n", 1)[0].split(" ")
    if first[:3] != ["#", "plan", session]:
        raise ValueError(f"a plan of another session: {first}")
    return int(first[3])
