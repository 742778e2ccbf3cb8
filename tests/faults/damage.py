"""P11: damage is detected and named, costs what it hit, and is not made worse.

Copies of a healthy store are damaged: a byte flipped, a page or a range zeroed, the file
cut off, the header overwritten. Whatever was hit, reading commands neither crash nor hang
and never show a message that is not what was written; what is missing is named by the
doctor; the damaged file stays as it is; and a salvage brings out every message that the
damage did not touch.
"""

import collections
import hashlib
import json
import pathlib
import shutil
import sqlite3

from lab import Broken, Lab
from ledger import Ledger
from material import Transcript, plan
from pages import Map
from sess import Done, Sess

NAME = "damage"
SESSIONS, MESSAGES_EACH = 20, 100
TIMEOUT_S = 10
KINDS = ("flip a byte", "flip a byte", "zero a page", "zero a range", "cut off", "overwrite the header")


class Healthy:
    """The store before the damage, and what it answers."""

    def __init__(self, lab: Lab):
        rng = lab.rng(NAME)
        self.home, files = lab.new_dir("healthy"), lab.new_dir("healthy-files")
        sess, ledger = Sess(lab, self.home), Ledger()
        self.sessions = []
        for number in range(SESSIONS):
            transcript = Transcript(rng, f"damage-{number}", MESSAGES_EACH, large_every=25)
            ledger.offer(transcript)
            sess.must("import", transcript.write(files))
            ledger.imported(transcript.session, MESSAGES_EACH)
            self.sessions.append(transcript.session)
            for _ in range(2):
                this = ledger.try_plan(transcript.session)
                content = plan(transcript.session, this, rng.choice((300, 6_000)))
                sess.must("tool", "call", "write_session_plan", json.dumps({"content": content}),
                          "--session", transcript.session)
        ledger.check(self.home)
        sess.must("doctor")
        move_log(self.home / "sess.db")
        self.transcripts = ledger.transcripts
        self.answers = ask_all(sess, self.sessions)
        self.map = Map(self.home / "sess.db")
        database = sqlite3.connect(f"file:{self.home / 'sess.db'}?mode=ro", uri=True)
        self.rows = {n: (message_id, body) for n, message_id, body in database.execute("SELECT n, id, body FROM messages")}
        database.close()
        lab.remove(files)


def move_log(path: pathlib.Path) -> None:
    """Moves what is left in the log into the file, which is what gets damaged."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def ask_all(sess: Sess, sessions: list[str]) -> dict[tuple, Done]:
    """Asks everything that a person could: what the store means."""
    questions = {("list",): ["list", "--json", "--limit", "100"]}
    for session in sessions:
        questions["export", session] = ["export", session]
        # Some also by the other ways in; they read the same rows.
        if session.endswith(("1", "5", "9")):
            questions["read", session] = ["read", session]
            questions["plan", session] = ["plan", "show", "--revision", "1", "--session", session, "--json"]
    answers = {}
    for name, question in questions.items():
        done = sess.run(*question, timeout_s=TIMEOUT_S)
        # Where the store lies is no part of what it says.
        answers[name] = Done(done.code, done.out.replace(str(sess.home), "HOME"), done.err)
    return answers


def run(lab: Lab) -> str:
    healthy = Healthy(lab)
    counts = collections.Counter()
    lab.each(range(lab.figures.damaged), lambda number: attack(lab, healthy, number, counts))
    lab.remove(healthy.home)
    return (f"P11 damage: {lab.figures.damaged} damaged stores, {counts['differed']} answered differently, "
            f"{counts['named']} named by the doctor, {counts['salvaged']:,} messages salvaged "
            f"({counts['cost']:,} hit), {{lost}}")


def attack(lab: Lab, healthy: Healthy, number: int, counts: collections.Counter) -> None:
    rng = lab.rng(NAME, number)
    place = lab.new_dir("damaged")
    home = place / "home"
    shutil.copytree(healthy.home, home)
    what, touched = inflict(home / "sess.db", healthy.map, KINDS[number % len(KINDS)], rng)
    try:
        read_damaged(lab, healthy, home, counts)
        salvage(lab, healthy, home, touched, counts)
    except Broken as broken:
        raise Broken(f"{what}: {broken} (in {place})") from None
    lab.remove(place)


def inflict(path: pathlib.Path, known: Map, kind: str, rng) -> tuple[str, set[int]]:
    """Damages the file; returns what was done and which pages it touched."""
    data = bytearray(path.read_bytes())
    size, page_size = len(data), known.page_size
    if kind == "flip a byte":
        at = rng.randrange(size)
        data[at] ^= 1 << rng.randrange(8)
        what, first, last = f"byte {at} flipped", at, at
    elif kind == "zero a page":
        page = rng.randrange(known.pages)
        first, last = page * page_size, (page + 1) * page_size - 1
        what = f"page {page + 1} zeroed"
        data[first:last + 1] = bytes(page_size)
    elif kind == "zero a range":
        first = rng.randrange(size)
        last = min(size, first + rng.choice((16, 512, 5_000, 30_000))) - 1
        what = f"bytes {first} to {last} zeroed"
        data[first:last + 1] = bytes(last + 1 - first)
    elif kind == "cut off":
        first, last = rng.randrange(size // 512) * 512, size - 1
        what = f"cut off at {first} of {size}"
        del data[first:]
    else:
        first = rng.randrange(100)
        last = min(99, first + rng.choice((0, 3, 15, 99)))
        what = f"header bytes {first} to {last} overwritten"
        data[first:last + 1] = rng.randbytes(last + 1 - first)
    path.write_bytes(data)
    return what, set(range(first // page_size + 1, last // page_size + 2))


def read_damaged(lab: Lab, healthy: Healthy, home: pathlib.Path, counts: collections.Counter) -> None:
    sess = Sess(lab, home)
    fingerprint = digest(home / "sess.db")
    answers = ask_all(sess, healthy.sessions)
    doctor = sess.run("doctor", timeout_s=TIMEOUT_S)
    for session in healthy.sessions:
        check_shown(healthy, session, answers["export", session])
    wanted = healthy.answers
    differing = [" ".join(question) for question, answer in answers.items()
                 if answer.out != wanted[question].out or answer.code != wanted[question].code]
    counts["differed"] += bool(differing)
    counts["named"] += doctor.code != 0
    if differing and doctor.code == 0:
        raise Broken(f"{len(differing)} answers differ ({differing[:3]}) and the doctor found nothing: {doctor.told[:300]!r}")
    # One damaged digit of the version cannot be told from a newer program's store.
    if doctor.code != 0 and "damage" not in doctor.told and "newer sess" not in doctor.told:
        raise Broken(f"the doctor did not name the damage: code {doctor.code}, {doctor.told[:300]!r}")
    if doctor.code != 0 and digest(home / "sess.db") != fingerprint:
        raise Broken("reading changed the damaged file")


def check_shown(healthy: Healthy, session: str, export: Done) -> None:
    """Every message that is shown is the one that was written."""
    transcript = healthy.transcripts[session]
    written = {transcript.line(seq) for seq in range(1, MESSAGES_EACH + 1)}
    lines = [line for line in export.out.splitlines() if not line.startswith('{"type":"session"')]
    wrong = [line for line in lines if line not in written and "damage" not in line]
    if wrong:
        raise Broken(f"export of {session} shows what was never written: {wrong[0][:200]!r}")
    if len(lines) < MESSAGES_EACH and export.code == 0 and not export.err.strip():
        raise Broken(f"export of {session} leaves out {MESSAGES_EACH - len(lines)} messages in silence")


def salvage(lab: Lab, healthy: Healthy, home: pathlib.Path, touched: set[int], counts: collections.Counter) -> None:
    fingerprint = digest(home / "sess.db")
    target = home.parent / "salvaged"
    done = Sess(lab, home).run("doctor", "--salvage", target, timeout_s=30)
    if digest(home / "sess.db") != fingerprint:
        raise Broken("the salvage changed the damaged file")
    cost = healthy.map.rows_on(touched)
    expected = {healthy.rows[n] for n in healthy.rows.keys() - cost}
    counts["cost"] += len(cost)
    if done.code != 0 and expected:
        raise Broken(f"the salvage failed: {done.told[-400:]}")
    if not (target / "sess.db").exists():
        return
    Sess(lab, target).must("doctor")
    database = sqlite3.connect(f"file:{target / 'sess.db'}?mode=ro", uri=True)
    found = set(database.execute("SELECT id, body FROM messages"))
    database.close()
    counts["salvaged"] += len(found & set(healthy.rows.values()))
    if lost := expected - found:
        raise Broken(f"the salvage lost {len(lost)} messages that the damage did not touch "
                     f"(of {len(expected)}; pages {sorted(touched)[:5]}, leading to others: "
                     f"{sorted(touched & healthy.map.inner)})")


def digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
