"""What the program was asked for and what it acknowledged, against what is stored.

The ledger is kept by the client alone. After every attack the store is read with
an SQLite of its own, without the program, and has to agree: everything that was
acknowledged is there, everything that is there was asked for, whole, in order.
"""

import collections
import copy
import pathlib
import sqlite3
import threading

from lab import Broken
from material import Transcript, plan_number
from sess import Sess


class Ledger:
    def __init__(self):
        self.lock = threading.Lock()
        self.transcripts: dict[str, Transcript] = {}
        self.offered: dict[str, set[int]] = collections.defaultdict(set)
        self.acknowledged: dict[str, int] = {}
        self.plans_tried: dict[str, int] = collections.defaultdict(int)
        self.plans_acknowledged: dict[str, dict[int, int]] = collections.defaultdict(dict)
        self.count = 0
        self._fewest = 0

    def offer(self, transcript: Transcript, length: int | None = None) -> None:
        """Notes that a file with so many messages is about to be imported."""
        with self.lock:
            self.transcripts[transcript.session] = transcript
            self.offered[transcript.session].add(len(transcript.ids) if length is None else length)

    def imported(self, session: str, total: int) -> None:
        with self.lock:
            before = self.acknowledged.get(session, 0)
            self.acknowledged[session] = max(before, total)
            self.count += max(0, total - before)

    def try_plan(self, session: str) -> int:
        """Returns the number for the next plan of `session`."""
        with self.lock:
            self.plans_tried[session] += 1
            return self.plans_tried[session]

    def planned(self, session: str, number: int, revision: int) -> None:
        with self.lock:
            self.plans_acknowledged[session][number] = revision
            self.count += 1

    def frozen(self) -> "Ledger":
        """Returns what is acknowledged at this instant, for a picture taken next."""
        with self.lock:
            other = Ledger()
            other.transcripts, other.offered = dict(self.transcripts), copy.deepcopy(self.offered)
            other.acknowledged = dict(self.acknowledged)
            # What is tried after this instant may be in the picture too.
            other.plans_tried = self.plans_tried
            other.plans_acknowledged = copy.deepcopy(self.plans_acknowledged)
            other.count, other._fewest = self.count, self._fewest
            return other

    def check(self, home: pathlib.Path) -> "Stored":
        """Compares the store in `home` with this ledger."""
        stored = Stored(home)
        for session, transcript in self.transcripts.items():
            self._check_session(stored, session, transcript, home)
        strangers = set(stored.messages) - set(self.transcripts)
        if strangers:
            raise Broken(f"sessions that nobody imported: {sorted(strangers)[:5]}, in {home}")
        for session in set(self.plans_tried) | set(stored.plans):
            self._check_plans(stored, session, home)
        total = sum(map(len, stored.messages.values()))
        if total < self._fewest:
            raise Broken(f"messages became fewer: {self._fewest}, then {total}, in {home}")
        self._fewest = total
        return stored

    def _check_session(self, stored: "Stored", session: str, transcript: Transcript, home) -> None:
        rows = stored.messages.get(session, [])
        wanted = self.acknowledged.get(session, 0)
        if len(rows) < wanted:
            raise Broken(f"acknowledged and lost: session {session} has {len(rows)} of {wanted} messages, in {home}")
        if rows and len(rows) not in self.offered[session]:
            raise Broken(f"neither whole nor absent: session {session} has {len(rows)} messages, "
                         f"imports had {sorted(self.offered[session])}, in {home}")
        for place, (seq, message_id, body) in enumerate(rows, start=1):
            if seq != place:
                raise Broken(f"seq is not dense: session {session} has {seq} at place {place}, in {home}")
            if (message_id, body) != (transcript.ids[place - 1], transcript.bodies[place - 1]):
                raise Broken(f"message {seq} of session {session} is not what was imported, in {home}")
        last_seq = stored.last_seqs.get(session, 0)
        if last_seq != len(rows):
            raise Broken(f"session {session} counts {last_seq} messages and has {len(rows)}, in {home}")

    def _check_plans(self, stored: "Stored", session: str, home) -> None:
        rows = stored.plans.get(session, [])
        numbers = []
        for place, (revision, content) in enumerate(rows, start=1):
            if revision != place:
                raise Broken(f"plan revisions of {session} are not dense: {revision} at place {place}, in {home}")
            try:
                numbers.append(plan_number(content, session))
            except ValueError as error:
                raise Broken(f"revision {revision} of the plan of {session}: {error}, in {home}") from None
        if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > self.plans_tried[session]):
            raise Broken(f"plans of {session} out of order, twice or never written: {numbers[-10:]}, in {home}")
        for number, revision in self.plans_acknowledged[session].items():
            if revision > len(numbers) or numbers[revision - 1] != number:
                raise Broken(f"acknowledged and lost: plan {number} of {session}, answered as revision {revision}, "
                             f"stored are {numbers[-10:]}, in {home}")


class Stored:
    """Everything in a store, read without the program."""

    def __init__(self, home: pathlib.Path):
        self.messages: dict[str, list] = collections.defaultdict(list)
        self.plans: dict[str, list] = collections.defaultdict(list)
        self.last_seqs: dict[str, int] = {}
        path = home / "sess.db"
        if not path.exists():
            return
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
        try:
            self._read(database, home)
        except sqlite3.DatabaseError as error:
            raise Broken(f"the store cannot be read: {error}, in {home}") from None
        finally:
            database.close()

    def _read(self, database: sqlite3.Connection, home) -> None:
        told = database.execute("PRAGMA integrity_check").fetchall()
        if told != [("ok",)]:
            raise Broken(f"integrity_check: {told[:3]}, in {home}")
        self.last_seqs = dict(database.execute("SELECT id, last_seq FROM sessions"))
        for session, *row in database.execute(
                "SELECT s.id, m.seq, m.id, m.body FROM messages m JOIN sessions s ON s.n = m.session "
                "ORDER BY m.session, m.seq"):
            self.messages[session].append(tuple(row))
        for session, *row in database.execute(
                "SELECT s.id, p.revision, p.content FROM plan_revisions p JOIN sessions s ON s.n = p.session "
                "ORDER BY p.session, p.revision"):
            self.plans[session].append(tuple(row))


def check_export(sess: Sess, transcript: Transcript, length: int) -> None:
    """Compares what `sess export` prints with what was imported."""
    lines = sess.must("export", transcript.session).splitlines()
    if lines[1:] != [transcript.line(seq) for seq in range(1, length + 1)]:
        raise Broken(f"the export of {transcript.session} is not what was imported, in {sess.home}")


def check_plan_file(sess: Sess, ledger: Ledger, session: str) -> None:
    """Checks that the tool reads the plan that is stored last, and that the file is that plan."""
    stored = Stored(sess.home).plans.get(session)
    if not stored:
        return
    read = sess.run("tool", "call", "read_session_plan", "{}", "--session", session)
    path = sess.home / "session_plans" / f"{session}.md"
    content = path.read_text(encoding="utf-8") if path.exists() else None
    # The tool's text is printed, with at most a line's end of its own.
    if read.code != 0 or read.out.rstrip("\n") != stored[-1][1].rstrip("\n"):
        raise Broken(f"read_session_plan of {session} is not revision {stored[-1][0]}: {read.told[:200]!r}, in {sess.home}")
    if content != stored[-1][1]:
        raise Broken(f"the plan file of {session} is not revision {stored[-1][0]} after a read, in {sess.home}")
