"""P1, P2, P8, P17: what was acknowledged survives kill -9, whole and in order.

Eight writers are killed at a random instant, again and again on the same store.
After each kill the store has to agree with the ledger, and a follower must not have
been told of anything that the kill took back.
"""

import json
import subprocess
import threading
import time

from lab import Broken, Lab
from ledger import Ledger, Stored, check_export, check_plan_file
from sess import Sess
from writers import PLAN_WRITERS, Pool, Writers

NAME = "kills"
# A new store now and then: the first start is worth killing, too.
KILLS_A_STORE = 15
LONGEST_S = 0.5


def run(lab: Lab) -> str:
    kills, acknowledged, followed = 0, 0, 0
    stores = -(-lab.figures.kills // KILLS_A_STORE)
    for store in range(stores):
        ledger = Ledger()
        rounds = min(KILLS_A_STORE, lab.figures.kills - kills)
        try:
            followed += attack(lab, ledger, store, rounds)
        except Broken as broken:
            lab.found(str(broken))
        kills += rounds
        acknowledged += ledger.count
    return (f"P1 P2 P8 P17 kill -9: {kills} kills, {acknowledged:,} acknowledged, "
            f"{followed:,} seen by followers, {{lost}}")


def attack(lab: Lab, ledger: Ledger, store: int, rounds: int) -> int:
    rng = lab.rng(NAME, store)
    home, files = lab.new_dir("kills"), lab.new_dir("kills-files")
    sess = Sess(lab, home)
    followed = 0
    pools = 0
    pool = Pool(ledger, rng, files, f"s{store}-p{pools}", 250)
    for _ in range(rounds):
        if len(pool.left()) < 60:
            pools += 1
            pool = Pool(ledger, rng, files, f"s{store}-p{pools}", 250)
        follower = Follower(sess) if (home / "sess.db").exists() else None
        writers = Writers(sess, ledger, pool, rng, f"plan{store}")
        time.sleep(rng.random() ** 2 * LONGEST_S)
        writers.kill()
        stored = ledger.check(home)
        if follower:
            followed += follower.check(stored)
        # The program itself has to agree, and to go on.
        if (home / "sess.db").exists():
            sess.must("doctor")
        known = sorted(session for session, length in ledger.acknowledged.items() if length)
        if known:
            session = rng.choice(known)
            check_export(sess, ledger.transcripts[session], len(stored.messages[session]))
        for number in range(PLAN_WRITERS):
            if rng.random() < 0.4:
                check_plan_file(sess, ledger, f"plan{store}-{number}")
    ledger.check(home)
    lab.remove(home)
    lab.remove(files)
    return followed


class Follower:
    """`sess events --follow`: nothing that it was told may be taken back."""

    def __init__(self, sess: Sess):
        self.sess = sess
        self.lines: list[bytes] = []
        self.process = sess.start("events", "--follow", "--json", stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line)

    def check(self, stored: Stored) -> int:
        """Stops following; returns how many items were seen, all of which are in the store."""
        self.sess.lab.kill(self.process)
        self.thread.join()
        err = self.process.stderr.read().decode(errors="replace")
        self.sess.lab.ended(self.process)
        if "panicked" in err:
            raise Broken(f"sess events panicked: {err[-400:]}")
        positions = []
        for line in self.lines:
            if not line.endswith(b"\n"):
                continue  # Cut by our own kill.
            event = json.loads(line)
            positions.append(event["cursor"])
            self._check_event(event, stored)
        if positions != sorted(set(positions)):
            raise Broken(f"a follower was told twice or out of order, in {self.sess.home}")
        return len(positions)

    def _check_event(self, event: dict, stored: Stored) -> None:
        session = event["session_id"]
        if event["type"] == "message":
            message = event["message"]
            rows = stored.messages.get(session, [])
            seq = message["seq"]
            if seq > len(rows) or rows[seq - 1][1] != message["id"]:
                raise Broken(f"a follower was told message {seq} of {session}, "
                             f"and the kill took it back, in {self.sess.home}")
        elif event["type"] == "session_plan_updated":
            revision = event["revision"]
            rows = stored.plans.get(session, [])
            if revision > len(rows) or rows[revision - 1][1] != event["content"]:
                raise Broken(f"a follower was told revision {revision} of the plan of {session}, "
                             f"and the kill took it back, in {self.sess.home}")
