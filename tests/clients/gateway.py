"""A gateway on a scratch store, for the tests in this directory.

One agent is configured, `root`, whose model is a script: it says the same sentence again and again.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import urllib.request

REPLY = "All is well."
SESSION = {
    "type": "session",
    "id": "yesterday",
    "key": "agent:root:chat:yesterday",
    "agentId": "root",
    "title": "Failing uploads",
    "createdAt": "2026-01-02T03:04:05Z",
}


def messages(count):
    for n in range(1, count + 1):
        role = "user" if n % 2 else "assistant"
        text = {"type": "text", "text": f"message {n}"}
        yield {"role": role, "content": [text], "timestamp": 1767323045000 + n * 1000}


class Gateway:
    """Where it is, and what lets one in."""

    def __init__(self, sess, home):
        self.sess, self.home = sess, pathlib.Path(home)
        self.env = {"PATH": os.environ["PATH"], "HOME": home, "SESS_HOME": str(self.home / "data")}
        self.url = self.token = self.process = None

    def run(self, *args, stdin=""):
        command = [self.sess, "--config", str(self.home / "agents.yaml"), *args]
        done = subprocess.run(command, env=self.env, cwd=self.home, input=stdin, text=True, capture_output=True)
        if done.returncode != 0:
            raise AssertionError(f"sess {' '.join(args)}: {done.stderr}")
        return done.stdout

    def start(self, *options):
        command = [self.sess, "--config", str(self.home / "agents.yaml"), "--json", "serve", *options]
        log = open(self.home / "gateway.log", "ab")
        self.process = subprocess.Popen(command, env=self.env, cwd=self.home, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the gateway did not start: {self.log()}")
        self.url = json.loads(line)["listening"]

    def stop(self):
        """Ends it as a service manager would; it has to end well, and soon."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        if code != 0:
            raise AssertionError(f"the gateway ended with {code}: {self.log()}")

    def log(self):
        return (self.home / "gateway.log").read_text()

    def get(self, path, token=None):
        request = urllib.request.Request(self.url + path)
        request.add_header("Authorization", f"Bearer {token or self.token}")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


@contextlib.contextmanager
def gateway(sess, *options):
    with tempfile.TemporaryDirectory() as home:
        here = Gateway(os.path.abspath(sess), home)
        # A reply for each of the runs that a test may begin.
        (here.home / "script.yaml").write_text(f"- text: {REPLY}\n" * 10_000)
        (here.home / "agents.yaml").write_text("agents:\n  root: {model: scripted/script.yaml}\n")
        lines = [SESSION, *messages(10)]
        (here.home / "session.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        here.run("import", "session.jsonl")
        here.token = here.run("token").strip()
        here.start("--listen", "127.0.0.1:0", *options)
        try:
            yield here
            if here.process.poll() is not None:
                raise AssertionError(f"the gateway ended by itself: {here.log()}")
            here.stop()
            if here.token in here.log():
                raise AssertionError("the token stands in the log")
        except BaseException:
            here.process.kill()
            print(here.log())
            raise
