"""Runs the examples of docs/api.md against a real gateway, as a reader would.

usage: examples.py path/to/sess path/to/node

A fenced block in sh, python or js is an example; `expects="…"` behind the language says what it has to
print. Each runs on its own, with SESS_URL and SESS_TOKEN set.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

from gateway import gateway

PAGE = pathlib.Path(__file__).parents[2] / "docs/api.md"
EXAMPLE = re.compile(r'^```(sh|python|js)(?: expects="([^"]*)")?\n(.*?)^```$', re.M | re.S)
PATIENCE_SECONDS = 60
# A session that another agent left on the machine.
THEIRS = "11111111-2222-4333-8444-555555555555"


def leave_session(home):
    said = [("user", "Why does the build fail?"), ("assistant", "the cache was stale, so I made it anew")]
    lines, parent = [], None
    for number, (role, text) in enumerate(said):
        uuid = f"00000000-0000-4000-8000-00000000000{number}"
        content = text if role == "user" else [{"type": "text", "text": text}]
        lines.append({
            "type": role, "uuid": uuid, "parentUuid": parent, "isSidechain": False, "userType": "external",
            "sessionId": THEIRS, "cwd": "/work/project", "version": "2.1.325",
            "timestamp": f"2026-01-02T03:04:0{number}.000Z", "message": {"role": role, "content": content},
        })
        parent = uuid
    kept = home / ".claude/projects/-work-project"
    kept.mkdir(parents=True)
    (kept / f"{THEIRS}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(language, text, expected, env, node, home):
    command = {
        "sh": ["bash", "-euo", "pipefail", "-c", text],
        "python": [sys.executable, "-c", text],
        "js": [node, "--input-type=module", "--eval", text],
    }[language]
    try:
        done = subprocess.run(
            command, env=env, cwd=home, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired as late:
        return f"it did not end within {PATIENCE_SECONDS} s: {late.stdout} {late.stderr}"
    if done.returncode != 0:
        return f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    if expected not in done.stdout:
        return f"{expected!r} is not in {done.stdout!r}"
    return None


def main(sess, node):
    examples = [match for match in EXAMPLE.finditer(PAGE.read_text())]
    counts = {language: sum(match[1] == language for match in examples) for language in ("sh", "python", "js")}
    fences = len(re.findall(r"^```(?:sh|python|js)\b", PAGE.read_text(), re.M))
    if min(counts.values()) == 0 or len(examples) != fences:
        raise SystemExit(f"FAIL {fences} examples stand in the page, {len(examples)} can be read: {counts}")
    failed = 0
    with gateway(sess) as here:
        leave_session(here.home)
        # Whatever the file is called, readers call it sess.
        (here.home / "bin").mkdir()
        (here.home / "bin/sess").symlink_to(here.sess)
        path = f"{here.home}/bin:{os.environ['PATH']}"
        env = {
            **here.env,
            "PATH": path,
            "SESS_CONFIG": str(here.home / "agents.yaml"),
            "SESS_URL": here.url,
            "SESS_TOKEN": here.token,
        }
        for match in examples:
            language, expected, text = match[1], match[2] or "", match[3]
            line = PAGE.read_text().count("\n", 0, match.start()) + 1
            problem = run(language, text, expected, env, node, here.home)
            if problem:
                failed += 1
                print(f"FAIL docs/api.md:{line}: {problem}")
    if failed:
        raise SystemExit(f"FAIL {failed} of {len(examples)} examples")
    print(f"PASS docs/api.md, {len(examples)} examples: {counts}")


if len(sys.argv) != 3:
    raise SystemExit(__doc__)
main(sys.argv[1], os.path.abspath(sys.argv[2]))
