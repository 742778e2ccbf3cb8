"""Reads plan files in a tight loop, as any other program on the machine may.

usage: plan_reader.py <directory> <session>…; ends when its input is closed, and prints
what it saw as JSON. Never started by itself: plans.py runs it beside the kills.
"""

import json
import pathlib
import select
import sys
import time

from material import plan_number


def main(directory: pathlib.Path, sessions: list[str]) -> dict:
    reads, findings, last = 0, [], dict.fromkeys(sessions, 0)
    while not select.select([sys.stdin], [], [], 0)[0] and len(findings) < 20:
        for session in sessions:
            try:
                number = plan_number((directory / f"{session}.md").read_bytes().decode(), session)
            except (OSError, ValueError) as error:
                findings.append(f"the plan file of {session} could not be read as a plan: {error!r}")
                continue
            if number < last[session]:
                findings.append(f"the plan file of {session} went back from {last[session]} to {number}")
            last[session] = number
            reads += 1
        time.sleep(0.0005)
    return {"reads": reads, "findings": findings}


if __name__ == "__main__":
    print(json.dumps(main(pathlib.Path(sys.argv[1]), sys.argv[2:])))
