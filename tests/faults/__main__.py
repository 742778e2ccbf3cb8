"""Tries to break the promises of the real binary, and says what happened, one line a suite.

usage: scripts/faults [--tenth | --long] [name…], which builds what this needs.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

import claims
import clocks
import damage
import disk_full
import exchanges
import figures
import followers
import foreign
import io_errors
import keys
import kills
import leases
import originals
import overload
import plans
import power
import runs
import soak
import threats
import together
import waits
from lab import Broken, Lab, Skipped

SUITES = {suite.NAME: suite for suite in
          (kills, power, keys, plans, io_errors, disk_full, damage, clocks, together, originals, foreign, claims,
           runs, leases, exchanges, waits, followers, overload, soak, threats)}
SHOWN_MAX = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__.split("\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--tenth", dest="size", action="store_const", const="tenth", help="a tenth, for every test run")
    size.add_argument("--long", dest="size", action="store_const", const="long", help="the figures of a release")
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the program to attack")
    parser.add_argument("--injector", type=pathlib.Path, required=True, help="faultinj.so")
    parser.add_argument("names", nargs="*", metavar="name", help=f"suites to run: {', '.join(SUITES)}")
    options = parser.parse_args()
    if unknown := set(options.names) - set(SUITES):
        parser.error(f"no suite is called {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    go_private()
    # Asked to end, it tidies up like after an interrupt.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = int(os.environ.get("SESS_SEED") or random.SystemRandom().randrange(1 << 32))
    size = options.size or "full"
    say(f"{size} figures, SESS_SEED={seed}")
    # Links resolved: the injector compares paths as the kernel gives them.
    scratch = pathlib.Path(os.path.realpath(tempfile.mkdtemp(prefix="sess-faults-")))
    lab = Lab(scratch, options.binary.resolve(), options.injector.resolve(), figures.named(size), seed)
    is_broken = False
    try:
        for name, suite in SUITES.items():
            if not options.names or name in options.names:
                is_broken |= attack(lab, suite)
    except BaseException:
        is_broken = True
        raise
    finally:
        lab.stop_all()
        if is_broken:
            say(f"what failed is left in {scratch}; the same again with SESS_SEED={seed}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    return 1 if is_broken else 0


def attack(lab: Lab, suite) -> bool:
    """Runs one suite and prints its line; returns whether a promise was broken."""
    started = time.monotonic()
    lab.findings.clear()
    line = f"{suite.NAME}: stopped early, {{lost}}"
    try:
        line = suite.run(lab)
    except Skipped as reason:
        if not lab.findings:
            say(f"{suite.NAME}: skipped: {reason}")
            return False
        # What was found before counts, whatever this machine cannot do.
        say(f"{suite.NAME}: the rest was skipped: {reason}")
    except Broken as broken:
        lab.found(str(broken))
    count = len(lab.findings)
    say(f"{line.format(lost=f'{count} BROKEN' if count else '0 lost')} ({time.monotonic() - started:.0f} s)")
    for finding in lab.findings[:SHOWN_MAX]:
        say(f"  {finding}")
    if count > SHOWN_MAX:
        say(f"  and {count - SHOWN_MAX} more")
    return count > 0


def go_private() -> None:
    """Goes on in a mount namespace of its own, so that no mount outlives the run."""
    if os.geteuid() == 0 and shutil.which("unshare") and "SESS_FAULTS_PRIVATE" not in os.environ:
        os.environ["SESS_FAULTS_PRIVATE"] = "1"
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
        os.execvp(command[0], command)


def say(text: str) -> None:
    print(f"faults: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
