"""P16: other programs' files are never changed.

A docker-agent database is imported, also while its log still holds the newest rows, also
by a process that is killed half-way. Its directory is the same afterwards, byte for byte.
"""

import hashlib
import pathlib
import shutil
import sqlite3
import subprocess
import time

from lab import Broken, Lab
from sess import Sess

NAME = "originals"
FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures" / "docker-agent" / "session.db"
ROUNDS = 20


def run(lab: Lab) -> str:
    lab.each(range(ROUNDS), lambda number: attack(lab, number))
    return f"P16 foreign originals: {ROUNDS} imports of a docker-agent database, half of them killed, {{lost}}"


def attack(lab: Lab, number: int) -> None:
    rng = lab.rng(NAME, number)
    theirs = lab.new_dir("theirs")
    if number % 4 < 2:
        shutil.copy(FIXTURE, theirs / "session.db")
    else:
        copy_with_log(lab, theirs)
    before = fingerprint(theirs)
    sess = Sess(lab, lab.new_dir("ours"))
    if number % 2:
        process = sess.start("import", theirs / "session.db", stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.05)
        lab.kill(process)
        lab.ended(process)
    else:
        sess.must("import", theirs / "session.db")
    if fingerprint(theirs) != before:
        raise Broken(f"an import changed the original: {sorted(before)} and {sorted(fingerprint(theirs))}, in {theirs}")
    sess.must("import", theirs / "session.db")
    if fingerprint(theirs) != before:
        raise Broken(f"a second import changed the original, in {theirs}")
    sess.must("doctor")
    lab.remove(theirs)
    lab.remove(sess.home)


def copy_with_log(lab: Lab, target: pathlib.Path) -> None:
    """Copies the database as its owner leaves it while running: the newest row in the log."""
    source = lab.new_dir("running") / "session.db"
    shutil.copy(FIXTURE, source)
    owner = sqlite3.connect(source)
    owner.execute("PRAGMA journal_mode = WAL")
    owner.execute("UPDATE sessions SET title = title || ' (newer)'")
    owner.commit()
    for path in source.parent.iterdir():
        if not path.name.endswith("-shm"):
            shutil.copy(path, target / path.name)
    owner.close()
    lab.remove(source.parent)


def fingerprint(directory: pathlib.Path) -> dict:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
