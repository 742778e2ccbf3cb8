"""How often each promise is attacked.

One table for the three sizes of a run: the figures of the promises themselves,
a tenth of them for every test run (never fewer than 20 of each), and those of a
release. Looked up by name, so that a suite never carries a number of its own.
"""

from types import SimpleNamespace

FULL = {
    "kills": 300,
    "cuts": 50,
    "keys": 1_000,
    "plan_kills": 1_000,
    # Of the calls that can fail, one in this many is tried.
    "io_every": 1,
    "full_rounds": 12,
    "damaged": 500,
    "clocks": 50,
    "races": 100,
    "claims": 100,
    "claim_clones": 32,
    "appends": 10_000,
    # Each kills at all of the fail points of a turn.
    "run_chains": 100,
    "run_kills": 200,
    "leases": 100,
    "child_leases": 100,
    "lease_clocks": 50,
    # Each dies at four points of an exchange.
    "exchange_chains": 300,
    "waits": 1_000,
    "followed_cuts": 2_000,
    "forged_cursors": 400,
    "overload_followers": 1_000,
    "overload_s": 60,
    "soak_s": 120,
    "scanned_ports": 65_535,
}

TENTH = {
    "kills": 30,
    "cuts": 20,
    "keys": 100,
    "plan_kills": 100,
    "io_every": 10,
    "full_rounds": 7,
    "damaged": 50,
    "clocks": 20,
    "races": 20,
    "claims": 20,
    "claim_clones": 8,
    "appends": 1_000,
    "run_chains": 20,
    "run_kills": 20,
    "leases": 20,
    "child_leases": 20,
    "lease_clocks": 20,
    "exchange_chains": 30,
    "waits": 100,
    "followed_cuts": 200,
    "forged_cursors": 40,
    "overload_followers": 120,
    "overload_s": 5,
    "soak_s": 20,
    "scanned_ports": 2_000,
}

LONG = {
    "kills": 20_000,
    "cuts": 2_000,
    "keys": 50_000,
    "plan_kills": 10_000,
    "io_every": 1,
    "full_rounds": 60,
    "damaged": 20_000,
    "clocks": 200,
    "races": 1_000,
    "claims": 1_000,
    "claim_clones": 32,
    "appends": 10_000,
    "run_chains": 2_000,
    "run_kills": 10_000,
    "leases": 10_000,
    "child_leases": 10_000,
    "lease_clocks": 200,
    "exchange_chains": 6_000,
    "waits": 5_000,
    "followed_cuts": 50_000,
    "forged_cursors": 5_000,
    "overload_followers": 5_000,
    "overload_s": 600,
    "soak_s": 600,
    "scanned_ports": 65_535,
}


def named(size: str) -> SimpleNamespace:
    """Returns the figures of a run of this size."""
    return SimpleNamespace(**{"full": FULL, "tenth": TENTH, "long": LONG}[size])
