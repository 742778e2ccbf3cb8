# The commands of this repository. What needs an `if` is in xtask/ or scripts/.

# List the commands.
default:
    @just --list --unsorted

# What has to be green before a commit.
check: fmt-check clippy walls docs deny test

# Format everything.
fmt:
    cargo fmt --all

fmt-check:
    cargo fmt --all --check

clippy:
    cargo clippy --workspace --all-targets -- -D warnings

# Compare the dependencies between crates with the table.
walls:
    cargo xtask walls

# Check the links in the documentation, and that its examples are tests.
docs:
    cargo xtask check-docs

# Licences, banned crates, sources.
deny:
    PATH="$PWD/target/tools/bin:$PATH" cargo deny --log-level error check --hide-inclusion-graph bans licenses sources

# Unit and integration tests.
test:
    PATH="$PWD/target/tools/bin:$PATH" cargo nextest run --workspace

# Everything that scripts/test runs on a fresh machine.
test-all:
    ./scripts/test

# The promises under attack: kills, power cuts, failing disks, damage.
test-faults:
    SESS_PROPTEST_CASES=2000 cargo test --quiet --package sess-store --test it model
    ./scripts/faults

# The same with the figures of a release; takes hours.
test-long:
    ./scripts/faults --long

# Fuzz each target for some seconds.
fuzz seconds="60":
    ./scripts/fuzz {{ seconds }}

# The figures of the store and of the whole program, each beside its bound.
bench:
    cargo bench --package sess-store
    cargo build --release --package sess
    cargo bench --package sess-work
    cargo bench --package sess

# Write the configuration's JSON Schema anew; a test compares it.
schema:
    cargo run --quiet -- config schema > target/config.schema.json
    mv target/config.schema.json docs/config.schema.json

# The product in a minute, on a scratch store.
demo:
    cargo run --release -- demo

# The largest files and functions.
sizes:
    cargo xtask sizes
