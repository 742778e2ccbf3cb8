"""P10: a full or read-only disk is refused with a clear sentence, and ends by itself.

A small file system in memory is filled, by a file of ours up to a few pages and by the
program for the rest, until it refuses. Then the space is freed, and the same work has to
succeed. Again and again, with another rest of space each time. At the end the disk turns
read-only, and back.
"""

import json
import os
import shutil
import subprocess

from lab import Broken, Lab, Skipped
from ledger import Ledger
from material import Transcript, plan
from sess import Done, Gone, Sess

NAME = "full"
SIZES_MB = (8, 16, 32)
# With less than this the disk is full of our own data, and refusing is right.
ENOUGH_BYTES = 1_000_000


def run(lab: Lab) -> str:
    if os.geteuid() != 0:
        raise Skipped("a full disk needs root, to mount a small one")
    totals = {"refusals": 0, "acknowledged": 0}
    for size_mb in SIZES_MB:
        point = lab.new_dir("full")
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(point)],
                                 capture_output=True, text=True)
        if mounted.returncode != 0:
            raise Skipped(f"a full disk needs a tmpfs: {mounted.stderr.strip()}")
        try:
            attack(lab, point, size_mb, totals)
            read_only(lab, point)
        except Broken as broken:
            lab.found(f"{size_mb} MB: {broken}")
        finally:
            subprocess.run(["umount", str(point)], check=True)
    rounds = lab.figures.full_rounds * len(SIZES_MB)
    return (f"P10 disk full: {rounds} times full, {len(SIZES_MB)} times read-only, on {', '.join(map(str, SIZES_MB))} MB, "
            f"{totals['refusals']:,} refusals, {totals['acknowledged']:,} acknowledged, {{lost}}")


def attack(lab: Lab, point, size_mb: int, totals: dict) -> None:
    rng = lab.rng(NAME, size_mb)
    files = lab.new_dir("full-files")
    home, filler = point / "home", point / "filler"
    ledger, sess = Ledger(), Sess(lab, home)
    for number in range(lab.figures.full_rounds):
        if free(point) < max(4_000_000, size_mb * 400_000):
            # The better part is ours by now: a new store, from nothing.
            totals["acknowledged"] += ledger.count
            shutil.rmtree(home)
            ledger = Ledger()
        fill(point, filler, rng.choice((0, 20_000, 150_000, 400_000, 1_200_000)))
        transcripts = [Transcript(rng, f"full-{size_mb}-{number}-{n}", rng.randrange(1, 30)) for n in range(40)]
        paths = []
        for transcript in transcripts:
            ledger.offer(transcript)
            paths.append(transcript.write(files))
        # The program itself takes the rest of the space, until it has to refuse.
        totals["refusals"] += hear(sess.run("import", "--json", *paths), ledger)
        totals["refusals"] += write_plans(sess, ledger, rng)
        for command in (["list", "--json"], ["doctor"]):
            done = sess.run(*command)
            if done.code != 0:
                must_be_clear(done.told)
        check_elsewhere(lab, home, ledger)
        filler.unlink()
        # Nobody restarted or repaired anything: the same work succeeds now.
        again = sess.run("import", "--json", *paths)
        if hear(again, ledger) and free(point) > ENOUGH_BYTES:
            raise Broken(f"refused with {free(point):,} bytes free: {again.err[-300:]}, in {home}")
        content = plan("full", ledger.try_plan("full"), 2_000)
        done = sess.run("tool", "call", "write_session_plan", json.dumps({"content": content}), "--session", "full")
        if done.code != 0 and free(point) > ENOUGH_BYTES:
            raise Broken(f"a plan was refused with {free(point):,} bytes free: {done.told}")
        done = sess.run("doctor")
        if done.code != 0 and free(point) > ENOUGH_BYTES:
            raise Broken(f"the doctor found fault with {free(point):,} bytes free: {done.told}")
        if done.code != 0:
            must_be_clear(done.told)
        left = [path.name for path in home.rglob(".*") if path.name != ".lock"]
        if left:
            raise Broken(f"temporary files were left: {left}")
        # The disk may be full again by now.
        check_elsewhere(lab, home, ledger)
    totals["acknowledged"] += ledger.count
    lab.remove(files)


def check_elsewhere(lab: Lab, home, ledger: Ledger) -> None:
    """Looks at a copy: reading, too, needs some space beside the store."""
    copy = lab.new_dir("full-copy") / "home"
    shutil.copytree(home, copy)
    ledger.check(copy)
    lab.remove(copy.parent)


def read_only(lab: Lab, point) -> None:
    """Everything is refused with the cause while the disk is read-only, and works afterwards."""
    home = point / "home"
    sess = Sess(lab, home)
    shutil.rmtree(home)
    sess.must("tool", "call", "write_session_plan", json.dumps({"content": "old"}), "--session", "read-only")
    before = (home / "session_plans" / "read-only.md").read_text()
    remount(point, "ro")
    try:
        done = sess.run("tool", "call", "write_session_plan", json.dumps({"content": "new"}), "--session", "read-only")
        if done.code == 0 or "read-only" not in done.told.replace("read-only.md", ""):
            raise Broken(f"a plan on a read-only disk: code {done.code}, {done.told!r}")
        # Without its shared memory SQLite cannot even read a store: that may be refused, clearly.
        for command in (["list", "--json"], ["doctor"], ["tool", "call", "read_session_plan", "{}"]):
            done = sess.run(*command, "--session", "read-only")
            if done.code != 0 and "read-only" not in done.told.replace("read-only.md", ""):
                raise Broken(f"sess {command[0]} on a read-only disk: {done.told[-300:]!r}")
        if (home / "session_plans" / "read-only.md").read_text() != before:
            raise Broken("a refused write changed the plan")
    finally:
        remount(point, "rw")
    sess.must("tool", "call", "write_session_plan", json.dumps({"content": "new"}), "--session", "read-only")
    sess.must("doctor")


def remount(point, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(point)], check=True)


def free(point) -> int:
    stat = os.statvfs(point)
    return stat.f_bavail * stat.f_frsize


def fill(point, filler, rest: int) -> None:
    """Takes all space but `rest`."""
    with open(filler, "wb") as file:
        for _ in range(max(0, free(point) - rest) // 4096):
            try:
                file.write(b"x" * 4096)
            except OSError:
                return


def hear(done: Done, ledger: Ledger) -> int:
    """Takes down what an import acknowledged; returns 1 if it refused something, clearly."""
    for line in done.out.splitlines():
        told = json.loads(line)
        if told.get("id") is not None and "total" in told:
            ledger.imported(told["id"], told["total"])
    if done.code == 0:
        return 0
    must_be_clear(done.err)
    return 1


def must_be_clear(told: str) -> None:
    if "space" not in told and "full" not in told:
        raise Broken(f"refused on a full disk without saying so: {told[-300:]!r}")


def write_plans(sess: Sess, ledger: Ledger, rng) -> int:
    """Writes plans until one is refused; the former one is still there then."""
    client = sess.mcp("full")
    refusals = 0
    try:
        client.greet()
        for _ in range(30):
            number = ledger.try_plan("full")
            content = plan("full", number, rng.choice((300, 30_000, 300_000)))
            answer = client.call("write_session_plan", {"content": content})
            if answer.is_error:
                must_be_clear(answer.text)
                refusals += 1
                if refusals == 3:
                    break
            else:
                ledger.planned("full", number, answer.structured["revision"])
    except Gone:
        client.process.wait()
        must_be_clear(client.err.decode(errors="replace"))
    client.close()
    return refusals
