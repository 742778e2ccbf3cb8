"""Lets the real Claude Code, Codex and opencode use what `sess install` gives them.

usage: hosts.py path/to/sess [host…]

Each has a scratch home with a configuration of its own in it. After the install its command line lists the server;
then it talks to a model that follows a script, calls list_sessions and write_session_plan, and the plan is that of
its own session. After the uninstall the files are what they were. `plugin` is Claude Code with the plugin instead, by
the commands of docs/install.md.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from pathlib import Path

from model import Model

CLIENTS = Path(os.environ["CLIENTS_DIR"]).resolve()
PLAN = "1. measure\n2. cut"
SCRIPT = [("list_sessions", {}), ("write_session_plan", {"content": PLAN})]
PROMPT = "look at what there is, and write the plan"
PATIENCE_S = 110
REPOSITORY = Path(__file__).parents[2]


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def program(host):
    return str(CLIENTS / host / "node_modules/.bin" / host)


def listed_in(result):
    """The sessions of an answer, which hosts hand to the model as text or as structure, some with words before it."""
    start = min(at for at in (result.find("["), result.find("{")) if at >= 0)
    answer, _ = json.JSONDecoder().raw_decode(result[start:])
    sessions = answer["sessions"] if isinstance(answer, dict) else answer
    check(isinstance(sessions, list), f"list_sessions answered {result}")
    return sessions


class Home:
    """A home of its own, in which a repository is the working directory."""

    def __init__(self, sess, root):
        self.sess = sess
        self.home = Path(root) / "home"
        self.cwd = Path(root) / "repository"
        self.home.mkdir()
        self.cwd.mkdir()
        node = CLIENTS / "node24/node_modules/.bin"
        self.env = {"PATH": f"{node}:/usr/bin:/bin", "HOME": str(self.home), "NO_COLOR": "1", "LANG": "C.UTF-8"}
        self.run(["git", "init", "-q", "."])

    def run(self, command, env={}, stdin=""):
        done = subprocess.run(
            command, cwd=self.cwd, env=self.env | env, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S
        )
        check(done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def write(self, file, text):
        path = self.home / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def plans(self):
        return {path.stem: path.read_text() for path in self.home.glob(".local/share/intersession/session_plans/*.md")}


class Claude:
    """Its hook is tried, too: a plan of the session that is about to begin waits for a review."""

    def __init__(self, home, model):
        self.home = home
        self.session = str(uuid.uuid4())
        self.env = {
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }
        self.settings = home.write(".claude/settings.json", '{ "env": {"A": "1"} }')
        self.files = [self.settings]
        home.write(".claude.json", '{"numStartups":3,"mcpServers":{}}')

    def list(self):
        return self.home.run([program("claude"), "mcp", "list"], self.env)

    def talk(self):
        self.home.run([self.home.sess, "plan", "write", "--session", f"claude:{self.session}"], stdin="draft")
        self.home.run([self.home.sess, "tool", "call", "exit_plan_mode", "--session", f"claude:{self.session}"])
        allowed = [f"mcp__sess__{tool}" for tool, _ in SCRIPT]
        command = [program("claude"), "-p", PROMPT, "--session-id", self.session, "--output-format", "json"]
        answer = json.loads(self.home.run(command + ["--allowedTools", *allowed], self.env))
        answer = answer[-1] if isinstance(answer, list) else answer
        return answer["session_id"]

    def heard(self, model):
        told = any("waits for the person's review" in request for request in model.heard)
        check(told, "the hook's words did not reach the model")
        told = any("intersession" in request for request in model.heard)
        check(told, "the model was not told of the skill")

    def gone(self):
        # It writes this file whenever it runs; the entry has to go all the same.
        servers = json.loads((self.home.home / ".claude.json").read_text()).get("mcpServers")
        check(servers == {}, f"servers that are left: {servers}")


class Codex:
    def __init__(self, home, model):
        self.home = home
        self.env = {"SCRIPT_KEY": "none"}
        text = (
            '# mine\nmodel = "script"   # the only one\nmodel_provider = "script"\n'
            f'[model_providers.script]\nname = "script"\nbase_url = "{model.url}/v1"\nenv_key = "SCRIPT_KEY"\n'
            'wire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n[analytics]\nenabled = false'
        )
        self.files = [home.write(".codex/config.toml", text)]

    def list(self):
        return self.home.run([program("codex"), "mcp", "list"], self.env)

    def talk(self):
        # Without a person there is nobody whom it could ask.
        approve = ["-c", 'mcp_servers.sess.default_tools_approval_mode="approve"']
        command = [program("codex"), "exec", "--skip-git-repo-check", "--json", *approve, PROMPT]
        events = [json.loads(line) for line in self.home.run(command, self.env).splitlines() if line.startswith("{")]
        return next(event["thread_id"] for event in events if event["type"] == "thread.started")

    def heard(self, model):
        told = any("intersession" in request for request in model.heard)
        check(told, "the model was not told of the skill")

    def gone(self):
        pass


class Opencode:
    def __init__(self, home, model):
        self.home = home
        self.env = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
        text = f"""{{
  "$schema": "https://opencode.ai/config.json", // mine
  "autoupdate": false, "share": "disabled",
  "model": "script/script", "small_model": "script/script", "enabled_providers": ["script"],
  "provider": {{
    "script": {{
      "npm": "@ai-sdk/openai-compatible", "name": "script",
      "options": {{"baseURL": "{model.url}/v1", "apiKey": "none"}},
      "models": {{"script": {{"name": "script", "tool_call": true, "limit": {{"context": 100000, "output": 8000}}}}}},
    }},
  }},
}}"""
        self.files = [home.write(".config/opencode/opencode.json", text)]

    def list(self):
        return self.home.run([program("opencode"), "mcp", "list"], self.env)

    def talk(self):
        command = [program("opencode"), "run", "--format", "json", PROMPT]
        events = [json.loads(line) for line in self.home.run(command, self.env).splitlines() if line.startswith("{")]
        return events[0]["sessionID"]

    def heard(self, model):
        pass

    def gone(self):
        pass


HOSTS = {"claude": Claude, "codex": Codex, "opencode": Opencode}


def try_host(name, sess):
    started = time.monotonic()
    model = Model(SCRIPT)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        home = Home(sess, root)
        host = HOSTS[name](home, model)
        before = {path: path.read_bytes() for path in host.files}
        home.run([sess, "install", name])
        home.run([sess, "install", name])
        listed = host.list()
        check("sess" in listed and sess in listed, f"`{name} mcp list` does not show it: {listed}")

        session = host.talk()
        check(len(model.results) == 2, f"results that reached the model: {model.results}")
        sessions = listed_in(model.results[0])
        check(all(session not in row["id"] for row in sessions), f"its own session is in the list: {sessions}")
        plans = home.plans()
        check(plans == {session: PLAN}, f"the session is {session}, the plans are {plans}; {model.results[1]}")
        host.heard(model)

        home.run([sess, "uninstall", name])
        for path, bytes in before.items():
            check(path.read_bytes() == bytes, f"{path} is not what it was: {path.read_text()}")
        check("sess" not in [word.strip(":") for word in host.list().split()], f"`{name} mcp list` still shows it")
        host.gone()
        check(not list(home.home.rglob("intersession/SKILL.md")), "the skill is still there")
    model.close()
    print(f"{name}: installed, used and uninstalled in {time.monotonic() - started:.0f} s")


def try_plugin(sess):
    started = time.monotonic()
    page = (REPOSITORY / "docs/install.md").read_text()
    commands = [shlex.split(line, comments=True) for line in re.findall(r"^\$ (claude .*)$", page, re.M)]
    check(len(commands) == 2, f"docs/install.md has these commands for the plugin: {commands}")
    model = Model(SCRIPT)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        home = Home(sess, root)
        # As somebody has it who cloned the repository and has `sess` on the path.
        shutil.copytree(REPOSITORY / "plugin", home.cwd / "plugin")
        (home.home / "bin").mkdir()
        (home.home / "bin/sess").symlink_to(sess)
        env = Claude(home, model).env | {"PATH": f"{home.home}/bin:{home.env['PATH']}"}
        for command in commands:
            words = [program("claude"), *command[1:]]
            if command[1] == "plugin":
                home.run(words, env)
                continue
            session = str(uuid.uuid4())
            home.run([*words, "-p", PROMPT, "--session-id", session, "--dangerously-skip-permissions"], env)
            check(len(model.results) == 2, f"results that reached the model: {model.results}")
            check(home.plans() == {session: PLAN}, f"the session is {session}, the plans are {home.plans()}")
    model.close()
    print(f"plugin: used as docs/install.md says in {time.monotonic() - started:.0f} s")


def side_by_side(names, attempt):
    """Attempts all at once; ends with the names of those that failed."""
    failed = []

    def caught(name):
        try:
            attempt(name)
        except Exception:
            failed.append(name)
            traceback.print_exc()

    threads = [threading.Thread(target=caught, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def main():
    sess = os.path.realpath(sys.argv[1])
    names = sys.argv[2:] or list(HOSTS)
    names += ["plugin"] if "claude" in names else []
    side_by_side(names, lambda name: try_plugin(sess) if name == "plugin" else try_host(name, sess))


if __name__ == "__main__":
    main()
