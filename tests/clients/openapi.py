"""Makes requests out of the gateway's own OpenAPI description, right ones and wrong ones, with schemathesis.

None may be answered by an error of the server, or in a way that the description does not have.

usage: openapi.py path/to/sess path/to/schemathesis
"""

import os
import subprocess
import sys

from gateway import gateway

# Requests that are made of each operation.
EXAMPLES = 25
# Streams never end by themselves, and MCP is another protocol's business.
LEFT_OUT = r"^/(mcp|ws)"


def main(sess, schemathesis):
    with gateway(sess) as here:
        command = [
            schemathesis,
            "run",
            f"{here.url}/openapi.json",
            "--header",
            f"Authorization: Bearer {here.token}",
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            "--exclude-path-regex",
            LEFT_OUT,
            "--max-examples",
            str(EXAMPLES),
            "--request-timeout",
            "10",
            "--seed",
            "1",
            "--no-color",
        ]
        done = subprocess.run(command, cwd=here.home, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"FAIL schemathesis\n{done.stdout[-20000:]}{done.stderr}")
        health = here.get("/sessions?limit=1")
        if health["count"] < 1:
            raise SystemExit(f"FAIL the sessions are gone: {health}")
    print(f"PASS schemathesis\n{done.stdout[-600:]}")


if len(sys.argv) != 3:
    raise SystemExit(__doc__)
main(sys.argv[1], os.path.abspath(sys.argv[2]))
